-- In each round the benchmark measures the product after this program, on the same server.
-- Autovacuum is off in all tables here, because its work would add to the product's CPU time.
CREATE TABLE deals (
    id    bigint PRIMARY KEY,
    state text   NOT NULL,
    doc   jsonb  NOT NULL
) WITH (autovacuum_enabled = off);

CREATE TABLE actions (
    deal  bigint NOT NULL,
    party int    NOT NULL,
    kind  int    NOT NULL, -- 1: commit, 2: reveal
    hash  bytea  NOT NULL,
    at    timestamptz DEFAULT now(),
    PRIMARY KEY (deal, kind, party)
) WITH (autovacuum_enabled = off);

CREATE TABLE log_head (
    id        int    PRIMARY KEY,
    size      bigint NOT NULL,
    root      bytea,
    signature bytea
) WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO log_head VALUES (1, 0);

CREATE TABLE leaves (
    leaf_index bigint PRIMARY KEY,
    hash       bytea  NOT NULL,
    entry      bytea  NOT NULL
) WITH (autovacuum_enabled = off);

CREATE TABLE nodes (
    level      int    NOT NULL,
    node_index bigint NOT NULL,
    hash       bytea  NOT NULL,
    PRIMARY KEY (level, node_index)
) WITH (autovacuum_enabled = off);
