package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var (
	findReplaySQL   = query("find_replay")
	setResponseSQL  = query("set_response")
	expireReplaySQL = query("expire_replay")
	putRoundSQL     = query("put_round")
	getRoundSQL     = query("get_round")
)

// FindReplay reads an idempotency record that has not expired, by its scope or by
// what that is under former server secrets, or ErrNotFound. A nil Response means
// that the effect took place and its answer was not stored.
func (s *Store) FindReplay(ctx context.Context, scope []byte, former [][]byte) (r Replay, err error) {
	err = s.pool.QueryRow(ctx, findReplaySQL, scope, former).Scan(&r.Scope, &r.Body, &r.Response)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, ErrNotFound
	}
	return r, outage(err)
}

// SetResponse stores a record's response unless it has one, and gives the one
// that stands. ErrNotFound: the record has expired.
func (s *Store) SetResponse(ctx context.Context, scope, response []byte) (stands []byte, err error) {
	err = s.pool.QueryRow(ctx, setResponseSQL, scope, response).Scan(&stands)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return stands, outage(err)
}

// ExpireReplay deletes the record if its time is over, so that its key can be
// used again before the sweep comes by.
func (s *Store) ExpireReplay(ctx context.Context, scope []byte) error {
	_, err := s.pool.Exec(ctx, expireReplaySQL, scope)
	return outage(err)
}

// PutRound keeps a verified beacon round for ever.
func (s *Store) PutRound(ctx context.Context, chainHash string, round int64, randomness, signature string) error {
	_, err := s.pool.Exec(ctx, putRoundSQL, chainHash, round, randomness, signature)
	return outage(err)
}

// Round reads a kept beacon round, or ErrNotFound.
func (s *Store) Round(ctx context.Context, chainHash string, round int64) (randomness, signature string, err error) {
	err = s.pool.QueryRow(ctx, getRoundSQL, chainHash, round).Scan(&randomness, &signature)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", ErrNotFound
	}
	return randomness, signature, outage(err)
}
