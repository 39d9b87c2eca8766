-- +goose Up

-- The committed tree, in one row. A transaction that appends leaves holds the row's lock.
-- The column hashes holds the compact range of the leaves [0, size): the roots of the
-- perfect subtrees that cover these leaves, left to right. The row starts as the empty tree.
-- The root of the empty tree is the SHA-256 hash of the empty string (RFC 6962 2.1).
CREATE TABLE translog.log_head (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    size      bigint  NOT NULL CHECK (size >= 0),
    root      bytea   NOT NULL CHECK (octet_length(root) = 32),
    hashes    bytea[] NOT NULL
);
INSERT INTO translog.log_head (size, root, hashes) VALUES (0, sha256(''), '{}');

-- A tag is a hash of a deal's id. The log accepts one entry for each tag, and so one
-- certificate for each deal.
CREATE TABLE translog.leaves (
    leaf_index bigint PRIMARY KEY CHECK (leaf_index >= 0),
    entry      bytea  NOT NULL UNIQUE CHECK (octet_length(entry) = 32),
    tag        bytea  NOT NULL UNIQUE CHECK (octet_length(tag) = 32)
);

-- Level 8k holds the roots of complete subtrees of 256^k leaves. node_index counts these
-- subtrees from the left, from 0.
CREATE TABLE translog.nodes (
    level      smallint NOT NULL CHECK (level > 0 AND level % 8 = 0),
    node_index bigint   NOT NULL CHECK (node_index >= 0),
    hash       bytea    NOT NULL CHECK (octet_length(hash) = 32),
    PRIMARY KEY (level, node_index)
);

-- Published heads. The deployment key signs the digest, and the log refuses this digest as
-- an entry. Otherwise the head's signature would also be a signature of the entry.
CREATE TABLE translog.tree_heads (
    tree_size bigint PRIMARY KEY CHECK (tree_size >= 0),
    root      bytea  NOT NULL CHECK (octet_length(root) = 32),
    digest    bytea  NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    signature text   NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION translog.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'translog.% is insert-only', TG_TABLE_NAME;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.leaves
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.nodes
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.tree_heads
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
CREATE TRIGGER never_removed BEFORE DELETE OR TRUNCATE ON translog.log_head
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();

-- Published heads as signed notes (c2sp.org/tlog-checkpoint), at most one for each size.
-- The column digest holds the SHA-256 hash of the note's text. The deployment key signs this
-- digest, and the log refuses this digest as an entry. Otherwise the signature would also be
-- a signature of the entry.
CREATE TABLE translog.checkpoints (
    tree_size bigint      PRIMARY KEY CHECK (tree_size >= 0),
    digest    bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    note      text        NOT NULL,
    signed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();

-- The signature lines of witnesses. The column witness holds the name and ID of the
-- witness's key. The largest tree_size of a witness is the largest size that this witness
-- is known to have cosigned.
CREATE TABLE translog.cosignatures (
    witness   text   NOT NULL,
    tree_size bigint NOT NULL REFERENCES translog.checkpoints,
    line      text   NOT NULL,
    PRIMARY KEY (witness, tree_size)
);
CREATE INDEX cosignatures_size ON translog.cosignatures (tree_size);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.cosignatures
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();

-- Sizes of the checkpoints whose cosignatures met the quorum of the witness policy.
CREATE TABLE translog.witnessed (
    tree_size bigint PRIMARY KEY REFERENCES translog.checkpoints
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.witnessed
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
