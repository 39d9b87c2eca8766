-- +goose Up

-- The leaf of each tag. The log takes one entry with a tag and no other. It does not
-- know how a tag is made. A leaf that a release without tags appended has none until
-- `fairpactctl migrate` tags it.
CREATE TABLE translog.tags (
    tag        bytea  PRIMARY KEY CHECK (octet_length(tag) = 32),
    leaf_index bigint NOT NULL CHECK (leaf_index >= 0)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.tags
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
