-- +goose Up

-- Leaves that `fairpactctl certificate return` appended again after a restore. Their deals may be
-- lost, so a leaf without a certificate is no sign of a stolen key if it is here.
CREATE TABLE translog.returned (
    leaf_index  bigint      PRIMARY KEY CHECK (leaf_index >= 0),
    returned_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.returned
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
