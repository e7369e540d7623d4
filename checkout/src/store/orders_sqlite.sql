-- Orders, their payments, and what gateways and the gate said. Times are microseconds since the Unix epoch, ids
-- are UUIDs as 16 bytes, so that they sort as in every other store.
CREATE TABLE orders (
    id BLOB PRIMARY KEY, sale TEXT NOT NULL, account TEXT NOT NULL, item TEXT NOT NULL, units TEXT NOT NULL,
    amount INTEGER NOT NULL, currency TEXT NOT NULL, email TEXT,
    claimed_at INTEGER NOT NULL, hold_expires_at INTEGER NOT NULL,
    state TEXT NOT NULL, ending TEXT, gate TEXT NOT NULL,
    unit_count INTEGER NOT NULL, unsettled INTEGER NOT NULL, changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX orders_unsettled ON orders (id) WHERE unsettled = 1;
CREATE INDEX orders_due ON orders (hold_expires_at) WHERE state = 'awaiting_payment' AND ending IS NULL;
CREATE INDEX orders_by_sale ON orders (sale, item, state, gate, unit_count);

-- One live owner for each unit.
CREATE TABLE order_units (
    sale TEXT NOT NULL, item TEXT NOT NULL, unit INTEGER NOT NULL, order_id BLOB NOT NULL REFERENCES orders (id),
    PRIMARY KEY (sale, item, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE payments (
    id BLOB PRIMARY KEY, order_id BLOB NOT NULL REFERENCES orders (id), position INTEGER NOT NULL,
    state TEXT NOT NULL, redirect_url TEXT,
    paid_amount INTEGER, paid_currency TEXT, created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX payments_by_order ON payments (order_id, position);

CREATE TABLE notifications (
    gateway TEXT NOT NULL, event TEXT NOT NULL, payment BLOB NOT NULL, order_id BLOB, outcome TEXT NOT NULL,
    amount INTEGER, currency TEXT, parked INTEGER NOT NULL, received_at INTEGER NOT NULL,
    PRIMARY KEY (gateway, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX notifications_parked ON notifications (order_id) WHERE parked = 1;

CREATE TABLE anomalies (
    number INTEGER PRIMARY KEY AUTOINCREMENT, order_id BLOB NOT NULL, payment BLOB, kind TEXT NOT NULL,
    detail TEXT NOT NULL, found_at INTEGER NOT NULL
) STRICT;

CREATE TABLE dead_letters (
    sale TEXT NOT NULL, event TEXT NOT NULL, problem TEXT NOT NULL, found_at INTEGER NOT NULL,
    PRIMARY KEY (sale, event)
) STRICT, WITHOUT ROWID;
