-- +goose Up

-- The leaf that a tag stands for: a tag is logged with one entry and never with
-- another. The log does not know what a tag is made of. A leaf of a release
-- without tags has none until it is tagged (tag_leaves.sql).
CREATE TABLE translog.tags (
    tag        bytea  PRIMARY KEY CHECK (octet_length(tag) = 32),
    leaf_index bigint NOT NULL CHECK (leaf_index >= 0)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.tags
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
