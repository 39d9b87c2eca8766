-- +goose NO TRANSACTION
-- +goose Up

-- The cost of an API key's open deals is limited. use_key.sql finds these deals by this
-- index. IS NOT FALSE keeps the planner from using the index for other conditions on the
-- phase. The DROP removes an invalid index that an interrupted run of this migration may
-- have left.
DROP INDEX CONCURRENTLY IF EXISTS deals_open;
CREATE INDEX CONCURRENTLY deals_open ON deals (owner_hash) WHERE (phase IN ('COMMITTING', 'REVEALING')) IS NOT FALSE;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS deals_open;
