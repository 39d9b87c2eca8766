-- +goose NO TRANSACTION
-- +goose Up

-- What one API key has open is bounded, and counted when it may be too much. IS NOT
-- FALSE keeps the planner from using this index for any other condition on the phase.
-- What an interrupted migration left behind is not valid, and is made again.
DROP INDEX CONCURRENTLY IF EXISTS deals_open;
CREATE INDEX CONCURRENTLY deals_open ON deals (owner_hash) WHERE (phase IN ('COMMITTING', 'REVEALING')) IS NOT FALSE;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS deals_open;
