-- +goose Up

-- A tag is a hash of a deal's id. The log accepts one entry for each tag, and so one
-- certificate for each deal. A leaf from a release without tags has no tag until
-- `fairpactctl migrate` adds one.
CREATE TABLE translog.tags (
    tag        bytea  PRIMARY KEY CHECK (octet_length(tag) = 32),
    leaf_index bigint NOT NULL CHECK (leaf_index >= 0)
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.tags
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
