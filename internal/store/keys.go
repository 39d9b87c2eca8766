package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var (
	insertKeySQL    = query("insert_key")
	useKeySQL       = query("use_key")
	knownKeySQL     = query("known_key")
	partyByTokenSQL = query("party_by_token")
)

// InsertKey stores an API key by its SHA-256, or returns ErrSecretMoved. SPEC 2.1:
// only its hash is stored.
func (s *Store) InsertKey(ctx context.Context, keyHash []byte, r *Replay) error {
	scope, body, response, lifetime := r.columns()
	var done bool
	err := s.pool.QueryRow(ctx, insertKeySQL, keyHash, scope, body, response, lifetime, r.secretOf()).Scan(&done)
	if err == nil && !done {
		err = ErrSecretMoved
	}
	return outage(replayed(err))
}

// UseKey reports whether the API key is known, and ends the replay of its
// creation: from its first use on, nobody gets it out of the service again. open is
// about what its open deals cost in units, of which it counts at most that many
// deals.
func (s *Store) UseKey(ctx context.Context, keyHash []byte, most int) (known bool, open int, err error) {
	err = s.pool.QueryRow(ctx, useKeySQL, keyHash, most).Scan(&known, &open)
	return known, open, outage(err)
}

// KnownKey reports whether the API key is known where UseKey fails with READ_ONLY.
func (s *Store) KnownKey(ctx context.Context, keyHash []byte) (known bool, err error) {
	err = s.pool.QueryRow(ctx, knownKeySQL, keyHash).Scan(&known)
	return known, outage(err)
}

// PartyByToken finds the deal and party index of an invite token's SHA-256, or
// ErrNotFound.
func (s *Store) PartyByToken(ctx context.Context, tokenHash []byte) (dealID string, party int, err error) {
	err = s.pool.QueryRow(ctx, partyByTokenSQL, tokenHash).Scan(&dealID, &party)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", 0, ErrNotFound
	}
	return dealID, party, outage(err)
}
