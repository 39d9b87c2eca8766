-- +goose Up

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
