-- +goose Up

-- The server secret that everything in this database is sealed under, as a
-- fingerprint that does not lead to it. One row; absent until a process of a
-- release that knows the table has started.
CREATE TABLE server_secret (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    fingerprint bytea   NOT NULL,
    since       bigint  NOT NULL
);

-- +goose Down
DROP TABLE server_secret;
