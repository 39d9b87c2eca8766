-- +goose Up

-- The fingerprint of the server secret that encrypts this database; the secret cannot
-- be computed from it. The table has one row, which the first process inserts.
CREATE TABLE server_secret (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    fingerprint bytea   NOT NULL,
    since       bigint  NOT NULL
);

-- +goose Down
DROP TABLE server_secret;
