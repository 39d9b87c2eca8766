-- +goose Up

-- Which fork guard the log accepts. The row with the largest number counts; without a row, or if
-- its identity is empty, the log has no guard, and the first guard that a publisher uses becomes
-- the log's. A dump contains the rows, so a restored copy still refuses every other guard.
CREATE TABLE translog.guards (
    number   bigint      PRIMARY KEY CHECK (number > 0),
    identity text        NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON translog.guards
    FOR EACH STATEMENT EXECUTE FUNCTION translog.refuse_change();
