-- +goose Up

-- A row is one run of one process that signs. It is live for as long as seen_at
-- is recent by this database's clock, and dead rows do no harm. Nothing is ever
-- trusted because of a row: it can only keep processes from signing and from
-- being ready.
CREATE TABLE replica.members (
    name       text        PRIMARY KEY, -- host and a random word, new at each start
    kind       text        NOT NULL,    -- the binary
    signs_with text        NOT NULL,    -- label of its current key
    accepts    text[]      NOT NULL,    -- labels of the keys under which it takes something new
    seen_at    timestamptz NOT NULL
);
