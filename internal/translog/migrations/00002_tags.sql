-- +goose Up

-- The leaf of each tag. The log takes one entry for each tag. Leaves that a release
-- without tags appended have no tag until `fairpactctl migrate` adds one.
CREATE TABLE translog.tags (
    tag        bytea  PRIMARY KEY CHECK (octet_length(tag) = 32),
    leaf_index bigint NOT NULL CHECK (leaf_index >= 0)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.tags
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
