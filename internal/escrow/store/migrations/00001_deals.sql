-- +goose Up

-- Times are unix seconds of this database's clock. JSON is stored in RFC 8785 form as
-- bytea, because jsonb and text reject U+0000, and jsonb rewrites the bytes.
--
-- There are no foreign keys: each costs a query for each inserted row, and none would ever refuse a row. A transaction that
-- inserts a row for a deal has locked or inserted that deal. No statement deletes a deal. Before a deal is created, deal-api
-- looks up the initiator's API key. (After a restore of an older backup, the database lacks the newest API keys. For up to a
-- second, a replica may still accept such a key from its cache. Nobody can cancel a deal that is created with such a key.)

CREATE TABLE api_keys (
    key_hash   bytea  PRIMARY KEY CHECK (length(key_hash) = 32), -- SHA-256 of the key
    created_at bigint NOT NULL
);

-- Only a change of its phase, the setting of its reveals_closed_at, and adopt.sql change a row. The states OPEN and
-- COMMITTING are one phase, COMMITTING, so that the first commitment of a deal changes no row of this table.
CREATE TABLE deals (
    deal_id           text   PRIMARY KEY,
    owner_hash        bytea  NOT NULL,
    algorithm         text   NOT NULL,
    params            bytea  NOT NULL,
    mode              text   NOT NULL CHECK (mode IN ('sealed', 'open')),
    retention         text   NOT NULL CHECK (retention IN ('standard', 'purge')),
    parties           int    NOT NULL CHECK (parties >= 2),
    commit_deadline   bigint NOT NULL,
    reveal_deadline   bigint NOT NULL CHECK (reveal_deadline > commit_deadline),
    created_at        bigint NOT NULL,
    chain_hash        text,            -- hash of the beacon chain, pinned at creation; only random.v1, like the next two columns
    beacon_round      bigint,
    round_time        bigint,
    phase             text   NOT NULL CHECK (phase IN ('COMMITTING', 'REVEALING', 'COMPUTED', 'VOID', 'EXPIRED', 'CANCELLED')),
    commits_closed_at bigint,
    reveals_closed_at bigint,
    computed_at       bigint,
    result            bytea,
    void_flakers      int[],
    cert_id           text,
    CHECK (result IS NULL OR void_flakers IS NULL)
);
CREATE INDEX deals_committing ON deals (commit_deadline) WHERE phase = 'COMMITTING';
CREATE INDEX deals_revealing ON deals (reveal_deadline) WHERE phase = 'REVEALING' AND reveals_closed_at IS NULL;
-- random.v1 deals in which all parties have revealed. The draw is due some time after the later of reveals_closed_at and
-- round_time.
CREATE INDEX deals_drawing ON deals (greatest(reveals_closed_at, round_time)) WHERE phase = 'REVEALING' AND reveals_closed_at IS NOT NULL;

-- The cost of an API key's open deals is limited. use_key.sql finds these deals by this index. IS NOT FALSE keeps the planner
-- from using the index for other conditions on the phase.
CREATE INDEX deals_open ON deals (owner_hash) WHERE (phase IN ('COMMITTING', 'REVEALING')) IS NOT FALSE;

CREATE TABLE parties (
    deal_id    text  NOT NULL,
    party      int   NOT NULL,
    label      text  NOT NULL,
    token_hash bytea NOT NULL UNIQUE CHECK (length(token_hash) = 32),
    seat_key   text,                   -- the public key that the initiator declared for the party
    PRIMARY KEY (deal_id, party)
);

-- The primary key allows one commitment for each party. Rows are only inserted.
CREATE TABLE commitments (
    deal_id      text   NOT NULL,
    party        int    NOT NULL,
    commitment   bytea  NOT NULL CHECK (length(commitment) = 32),
    committed_at bigint NOT NULL,
    attested_by  text,                 -- the party's attested_by in the certificate; null: no seat key signed the commitment
    PRIMARY KEY (deal_id, party)
);

-- The column sealed holds a party's input and salt, encrypted under the server secret with the fingerprint `secret`. The
-- transaction that ends a deal with retention purge sets sealed to null. The worker sets secret to null if it cannot decrypt
-- the input under that secret. The index finds what a rotation of the server secret must encrypt again. disclosed: the party
-- shows its input to the other parties, who see all inputs of a sealed deal once all parties show theirs.
CREATE TABLE reveals (
    deal_id     text   NOT NULL,
    party       int    NOT NULL,
    sealed      bytea,
    revealed_at bigint NOT NULL,
    secret      bytea,
    disclosed   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (deal_id, party)
);
CREATE INDEX reveals_secret ON reveals (secret, deal_id, party) WHERE sealed IS NOT NULL;

-- The transaction that ends a deal inserts the deal's certificate. A certificate is
-- pending while leaf_index is null.
CREATE TABLE certificates (
    cert_id    text   PRIMARY KEY,
    deal_id    text   NOT NULL UNIQUE,
    payload    bytea  NOT NULL,        -- the bytes that are signed
    mac        bytea  NOT NULL,        -- MAC of cert_id and payload under a server secret; a payload without a valid MAC is never signed
    signature  text,
    leaf_index bigint UNIQUE,
    created_at bigint NOT NULL
);
CREATE INDEX certificates_pending ON certificates (created_at) WHERE leaf_index IS NULL;

-- The columns scope and body hold HMACs under a server secret. The column response is
-- encrypted with a key that is derived from this secret, the Idempotency-Key, the caller's
-- credential or address, and the scope.
CREATE TABLE idempotency (
    scope      bytea  PRIMARY KEY,
    body       bytea  NOT NULL,
    response   bytea,
    api_key    bytea,                  -- only POST /v1/keys: hash of the new API key; the first use of that key deletes the row
    expires_at bigint NOT NULL
);
CREATE INDEX idempotency_expires ON idempotency (expires_at);
CREATE INDEX idempotency_api_key ON idempotency (api_key) WHERE api_key IS NOT NULL;

-- Verified beacon rounds. They are never deleted.
CREATE TABLE beacon_rounds (
    chain_hash text   NOT NULL,
    round      bigint NOT NULL,
    randomness text   NOT NULL,
    signature  text   NOT NULL,
    PRIMARY KEY (chain_hash, round)
);

-- The column fingerprint identifies the server secret that encrypts new data in this database. The secret cannot be computed
-- from its fingerprint. The column since holds the unix time in seconds at which the secret came into force. The table has
-- one row, which the first process inserts.
-- former: fingerprints of former secrets that stored data still needs.
CREATE TABLE server_secret (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    fingerprint bytea   NOT NULL,
    since       bigint  NOT NULL,
    former      bytea[] NOT NULL DEFAULT '{}'
);

-- The largest tree size of the log that is known to have met a quorum of witnesses. It never falls, so that a deal that was
-- shown as CERTIFIED stays CERTIFIED, even if the witnesses are taken out of the configuration. At most one row.
CREATE TABLE certified (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    size      bigint  NOT NULL
);

-- +goose Down
DROP TABLE certified, server_secret, beacon_rounds, idempotency, certificates, reveals, commitments, parties, deals, api_keys;
