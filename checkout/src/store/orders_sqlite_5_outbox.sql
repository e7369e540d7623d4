-- Messages to buyers and to the shop, written with the change that brought them.
ALTER TABLE orders ADD COLUMN language TEXT;
-- How many messages the order brought: their numbers are never used again, also once delivered ones are gone.
ALTER TABLE orders ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;

CREATE TABLE outbox (
    order_id BLOB NOT NULL REFERENCES orders (id), number INTEGER NOT NULL, channel TEXT NOT NULL, kind TEXT NOT NULL,
    content TEXT NOT NULL, created_at INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
    due_at INTEGER NOT NULL, lease INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
    problem TEXT, ended_at INTEGER, PRIMARY KEY (order_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox (channel, due_at) WHERE state = 'waiting';
CREATE INDEX outbox_ended ON outbox (state, ended_at) WHERE state <> 'waiting';
