-- What operators ask of the orders: the feed of paid orders, search, anomalies of a sale; and the reconciler's lease and
-- what it found last.

-- One row for each time an order became paid, due to be refunded, or refunded. Transactions commit in another order than
-- they took their numbers, so a row gets its place in the feed only after it is committed, by whoever reads: one at a
-- time, behind a lock.
CREATE TABLE order_changes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sale text NOT NULL, order_id uuid NOT NULL,
    state text NOT NULL, units text NOT NULL, changed_at bigint NOT NULL, position bigint
);
CREATE UNIQUE INDEX order_changes_by_position ON order_changes (sale, position) WHERE position IS NOT NULL;
CREATE INDEX order_changes_unplaced ON order_changes (sale, number) WHERE position IS NULL;
CREATE FUNCTION lockgate_note_order_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_changes (sale, order_id, state, units, changed_at)
    VALUES (NEW.sale, NEW.id, NEW.state, NEW.units, NEW.changed_at);
    RETURN NULL;
END $$;
CREATE TRIGGER orders_placed_changed AFTER INSERT ON orders FOR EACH ROW
    WHEN (NEW.state IN ('paid', 'refund_due', 'refunded')) EXECUTE FUNCTION lockgate_note_order_change();
CREATE TRIGGER orders_state_changed AFTER UPDATE ON orders FOR EACH ROW
    WHEN (NEW.state IN ('paid', 'refund_due', 'refunded') AND NEW.state <> OLD.state)
    EXECUTE FUNCTION lockgate_note_order_change();
INSERT INTO order_changes (sale, order_id, state, units, changed_at)
SELECT sale, id, state, units, changed_at FROM orders WHERE state IN ('paid', 'refund_due', 'refunded')
ORDER BY changed_at, id;

CREATE INDEX orders_of_sale ON orders (sale, id);
CREATE INDEX orders_by_state ON orders (sale, state, id);
CREATE INDEX orders_by_account ON orders (sale, account, id);
CREATE INDEX orders_by_email ON orders (sale, lower(email COLLATE "C"), id) WHERE email IS NOT NULL;

-- Set where an anomaly is about a claim that may have no order.
ALTER TABLE anomalies ADD COLUMN sale text;

CREATE TABLE leases (
    name text PRIMARY KEY, holder text NOT NULL, until bigint NOT NULL, life_ms bigint NOT NULL, fence bigint NOT NULL
);

CREATE TABLE reconciliations (
    sale text PRIMARY KEY, fence bigint NOT NULL, found text NOT NULL, found_at bigint NOT NULL
);
