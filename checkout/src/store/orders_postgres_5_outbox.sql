-- Messages to buyers and to the shop, written with the change that brought them.
ALTER TABLE orders ADD COLUMN language text;
-- How many messages the order brought: their numbers are never used again, also once delivered ones are gone.
ALTER TABLE orders ADD COLUMN messages bigint NOT NULL DEFAULT 0;

CREATE TABLE outbox (
    order_id uuid NOT NULL REFERENCES orders (id), number bigint NOT NULL, channel text NOT NULL, kind text NOT NULL,
    content text NOT NULL, created_at bigint NOT NULL, state text NOT NULL DEFAULT 'waiting',
    due_at bigint NOT NULL, lease bigint NOT NULL DEFAULT 0, attempts bigint NOT NULL DEFAULT 0,
    problem text, ended_at bigint, PRIMARY KEY (order_id, number)
);
CREATE INDEX outbox_due ON outbox (channel, due_at) WHERE state = 'waiting';
CREATE INDEX outbox_ended ON outbox (state, ended_at) WHERE state <> 'waiting';
