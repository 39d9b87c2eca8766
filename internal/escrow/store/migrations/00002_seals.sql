-- +goose Up
SET LOCAL lock_timeout = '2s';

-- seals: what the deal declares about seals; null: a commitment may come with or without one. seal_time: when the beacon round
-- of the deal's seals is due, in unix seconds; null: no commitment has brought a seal. The first one sets it.
ALTER TABLE deals ADD COLUMN seals text;
ALTER TABLE deals ADD COLUMN seal_time bigint;

-- The seals that commitments brought. hash: SHA-256 of the seal's text. The column sealed holds the text, encrypted under the
-- server secret with the fingerprint `secret`. state: sealed (not opened yet), opened (the party's reveal came from it), failed
-- (it does not open to the party's commitment), unused (the party revealed by hand, or the deal ended first). Only sealed and
-- failed seals have a text. round_time: when the beacon round of the seal is due.
CREATE TABLE seals (
    deal_id    text   NOT NULL,
    party      int    NOT NULL,
    hash       bytea  NOT NULL CHECK (length(hash) = 32),
    sealed     bytea,
    secret     bytea,
    sealed_at  bigint NOT NULL,
    round_time bigint NOT NULL,
    state      text   NOT NULL DEFAULT 'sealed' CHECK (state IN ('sealed', 'opened', 'failed', 'unused')),
    PRIMARY KEY (deal_id, party)
);
CREATE INDEX seals_pending ON seals (deal_id, party) WHERE state = 'sealed';
CREATE INDEX seals_secret ON seals (secret, deal_id, party) WHERE sealed IS NOT NULL;

-- +goose Down
DROP TABLE seals;
ALTER TABLE deals DROP COLUMN seals, DROP COLUMN seal_time;
