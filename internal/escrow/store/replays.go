package store

import "context"

var (
	findReplaySQL   = query("find_replay")
	setResponseSQL  = query("set_response")
	expireReplaySQL = query("expire_replay")
	sweepSQL        = query("sweep")
	putRoundSQL     = query("put_round")
	getRoundSQL     = query("get_round")
)

// FindReplay returns the idempotency record with this Replay.Scope, or ErrNotFound if there is
// no record or the record has expired. The slice `former` holds the same scope, computed with
// each other server secret of the process. A nil Response means that the effect took place and
// its response was not stored.
func (s *Store) FindReplay(ctx context.Context, scope []byte, former [][]byte) (r Replay, err error) {
	err = s.pool.QueryRow(ctx, findReplaySQL, scope, former).Scan(&r.Scope, &r.Body, &r.Response)
	return r, translate(err)
}

// SetResponse stores the response of an idempotency record unless the record already has one,
// and returns the stored response. It returns ErrNotFound if the record is gone.
func (s *Store) SetResponse(ctx context.Context, scope, response []byte) (stored []byte, err error) {
	err = s.pool.QueryRow(ctx, setResponseSQL, scope, response).Scan(&stored)
	return stored, translate(err)
}

// ExpireReplay deletes the idempotency record with this scope if it has expired, so that its
// Idempotency-Key can be used again before the next Sweep.
func (s *Store) ExpireReplay(ctx context.Context, scope []byte) error {
	_, err := s.pool.Exec(ctx, expireReplaySQL, scope)
	return translate(err)
}

// Sweep deletes all expired idempotency records, in several statements.
func (s *Store) Sweep(ctx context.Context) (deleted int64, err error) {
	for {
		tag, err := s.pool.Exec(ctx, sweepSQL)
		deleted += tag.RowsAffected()
		if err != nil || tag.RowsAffected() == 0 {
			return deleted, translate(err)
		}
	}
}

// PutRound stores a verified beacon round. Rounds are never deleted.
func (s *Store) PutRound(ctx context.Context, chainHash string, round int64, randomness, signature string) error {
	_, err := s.pool.Exec(ctx, putRoundSQL, chainHash, round, randomness, signature)
	return translate(err)
}

// Round returns a stored beacon round, or ErrNotFound.
func (s *Store) Round(ctx context.Context, chainHash string, round int64) (randomness, signature string, err error) {
	err = s.pool.QueryRow(ctx, getRoundSQL, chainHash, round).Scan(&randomness, &signature)
	return randomness, signature, translate(err)
}
