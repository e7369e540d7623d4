-- Orders, their payments, and what gateways and the gate said. Times are microseconds since the Unix epoch.
CREATE TABLE orders (
    id uuid PRIMARY KEY, sale text NOT NULL, account text NOT NULL, item text NOT NULL, units text NOT NULL,
    amount bigint NOT NULL, currency text NOT NULL, email text,
    claimed_at bigint NOT NULL, hold_expires_at bigint NOT NULL,
    state text NOT NULL, ending text, gate text NOT NULL,
    unit_count bigint NOT NULL, unsettled boolean NOT NULL, changed_at bigint NOT NULL
);
CREATE INDEX orders_unsettled ON orders (id) WHERE unsettled;
CREATE INDEX orders_due ON orders (hold_expires_at) WHERE state = 'awaiting_payment' AND ending IS NULL;
CREATE INDEX orders_by_sale ON orders (sale, item, state, gate) INCLUDE (unit_count);

-- One live owner for each unit.
CREATE TABLE order_units (
    sale text NOT NULL, item text NOT NULL, unit bigint NOT NULL, order_id uuid NOT NULL REFERENCES orders (id),
    PRIMARY KEY (sale, item, unit)
);

CREATE TABLE payments (
    id uuid PRIMARY KEY, order_id uuid NOT NULL REFERENCES orders (id), position bigint NOT NULL,
    state text NOT NULL, redirect_url text,
    paid_amount bigint, paid_currency text, created_at bigint NOT NULL
);
CREATE INDEX payments_by_order ON payments (order_id, position);

CREATE TABLE notifications (
    gateway text NOT NULL, event text NOT NULL, payment uuid NOT NULL, order_id uuid, outcome text NOT NULL,
    amount bigint, currency text, parked boolean NOT NULL, received_at bigint NOT NULL,
    PRIMARY KEY (gateway, event)
);
CREATE INDEX notifications_parked ON notifications (order_id) WHERE parked;

CREATE TABLE anomalies (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id uuid NOT NULL, payment uuid,
    kind text NOT NULL, detail text NOT NULL, found_at bigint NOT NULL
);

CREATE TABLE dead_letters (
    sale text NOT NULL, event text NOT NULL, problem text NOT NULL, found_at bigint NOT NULL,
    PRIMARY KEY (sale, event)
);
