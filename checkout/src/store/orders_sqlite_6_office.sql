-- What operators ask of the orders: the feed of paid orders, search, anomalies of a sale; and the reconciler's lease and
-- what it found last.

-- One row for each time an order became paid, due to be refunded, or refunded. One writer commits after the other, so
-- numbers appear in their order.
CREATE TABLE order_changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, sale TEXT NOT NULL, order_id BLOB NOT NULL, state TEXT NOT NULL,
    units TEXT NOT NULL, changed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX order_changes_by_sale ON order_changes (sale, number);
CREATE TRIGGER orders_placed_changed AFTER INSERT ON orders WHEN NEW.state IN ('paid', 'refund_due', 'refunded')
BEGIN
    INSERT INTO order_changes (sale, order_id, state, units, changed_at)
    VALUES (NEW.sale, NEW.id, NEW.state, NEW.units, NEW.changed_at);
END;
CREATE TRIGGER orders_state_changed AFTER UPDATE ON orders
WHEN NEW.state IN ('paid', 'refund_due', 'refunded') AND NEW.state <> OLD.state
BEGIN
    INSERT INTO order_changes (sale, order_id, state, units, changed_at)
    VALUES (NEW.sale, NEW.id, NEW.state, NEW.units, NEW.changed_at);
END;
INSERT INTO order_changes (sale, order_id, state, units, changed_at)
SELECT sale, id, state, units, changed_at FROM orders WHERE state IN ('paid', 'refund_due', 'refunded')
ORDER BY changed_at, id;

CREATE INDEX orders_of_sale ON orders (sale, id);
CREATE INDEX orders_by_state ON orders (sale, state, id);
CREATE INDEX orders_by_account ON orders (sale, account, id);
CREATE INDEX orders_by_email ON orders (sale, lower(email), id) WHERE email IS NOT NULL;

-- Set where an anomaly is about a claim that may have no order.
ALTER TABLE anomalies ADD COLUMN sale TEXT;

CREATE TABLE leases (
    name TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL, life_ms INTEGER NOT NULL, fence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE reconciliations (
    sale TEXT PRIMARY KEY, fence INTEGER NOT NULL, found TEXT NOT NULL, found_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
