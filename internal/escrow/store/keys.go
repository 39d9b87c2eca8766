package store

import "context"

var (
	insertKeySQL    = query("insert_key")
	useKeySQL       = query("use_key")
	knownKeySQL     = query("known_key")
	partyByTokenSQL = query("party_by_token")
)

// InsertKey stores the SHA-256 of an API key (SPEC 2.1: only its hash is stored). It returns
// ErrSecretReplaced if r was made with a server secret that is not in force.
func (s *Store) InsertKey(ctx context.Context, keyHash []byte, r *Replay) error {
	scope, body, response, lifetime := r.columns()
	var done bool
	err := s.pool.QueryRow(ctx, insertKeySQL, keyHash, scope, body, response, lifetime, r.secret()).Scan(&done)
	if err == nil && !done {
		err = ErrSecretReplaced
	}
	return translate(err)
}

// UseKey reports whether the API key is known. It also deletes the idempotency record of the
// key's creation, so that the service never returns the key again after the first use. The
// result `open` is the cost of the key's open deals, of which UseKey counts at most maxDeals. A
// deal costs one unit, and a large deal more (see use_key.sql).
func (s *Store) UseKey(ctx context.Context, keyHash []byte, maxDeals int) (known bool, open int, err error) {
	err = s.pool.QueryRow(ctx, useKeySQL, keyHash, maxDeals).Scan(&known, &open)
	return known, open, translate(err)
}

// KnownKey reports whether the API key is known. Unlike UseKey it works on a read-only database.
func (s *Store) KnownKey(ctx context.Context, keyHash []byte) (known bool, err error) {
	err = s.pool.QueryRow(ctx, knownKeySQL, keyHash).Scan(&known)
	return known, translate(err)
}

// PartyByToken returns the deal and party whose invite token has this SHA-256, or ErrNotFound.
func (s *Store) PartyByToken(ctx context.Context, tokenHash []byte) (dealID string, party int, err error) {
	err = s.pool.QueryRow(ctx, partyByTokenSQL, tokenHash).Scan(&dealID, &party)
	return dealID, party, translate(err)
}
