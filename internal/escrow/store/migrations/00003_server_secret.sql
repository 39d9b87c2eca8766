-- +goose Up

-- The column fingerprint identifies the server secret that encrypts new data in this
-- database. The secret cannot be computed from its fingerprint. The column since holds the
-- unix time in seconds at which the secret came into force. The table has one row, which the
-- first process inserts.
CREATE TABLE server_secret (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    fingerprint bytea   NOT NULL,
    since       bigint  NOT NULL
);

-- +goose Down
DROP TABLE server_secret;
