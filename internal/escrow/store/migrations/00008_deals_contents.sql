-- +goose NO TRANSACTION
-- +goose Up

-- Ended deals whose contents are stored. delete_contents.sql deletes the params, inputs and seals of such a deal some time after its
-- reveal_deadline and its end, if the deployment says so. Empty params mark a deal whose contents are deleted.
CREATE INDEX CONCURRENTLY deals_contents ON deals (greatest(reveal_deadline, computed_at, ended_at))
    WHERE phase IN ('COMPUTED', 'VOID', 'EXPIRED', 'CANCELLED') AND params <> '';

-- +goose Down
DROP INDEX CONCURRENTLY deals_contents;
