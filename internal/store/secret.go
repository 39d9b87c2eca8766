package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	serverSecretSQL = query("server_secret")
	claimSecretSQL  = query("claim_secret")
	liveInputSQL    = query("live_input")
	liveSQL         = query("live")
	loseDealsSQL    = query("lose_deals")
)

// ErrSecretMoved means that another server secret is in force than the one that a
// call wrote under; nothing was changed.
var ErrSecretMoved = errors.New("store: another server secret is in force")

// SecretState is what a database says about its server secrets.
type SecretState struct {
	Fingerprint []byte   // of the one in force, which writes
	Former      [][]byte // of those that something stored still needs; nil: never rotated
	Since       int64    // unix seconds, of Fingerprint
}

// ServerSecret reads which server secrets this database is sealed under, or
// ErrNotFound where none is recorded yet.
func (s *Store) ServerSecret(ctx context.Context) (state SecretState, err error) {
	err = s.pool.QueryRow(ctx, serverSecretSQL).Scan(&state.Fingerprint, &state.Former, &state.Since)
	if errors.Is(err, pgx.ErrNoRows) {
		return state, ErrNotFound
	}
	return state, outage(err)
}

// ClaimSecret records a fingerprint. Unless replace is true it does nothing
// where there is one.
func (s *Store) ClaimSecret(ctx context.Context, fingerprint []byte, replace bool) error {
	_, err := s.pool.Exec(ctx, claimSecretSQL, fingerprint, replace)
	return outage(err)
}

// SealedInput is one party's input as it is stored.
type SealedInput struct {
	DealID string
	Party  int
	Sealed []byte // nil: purged
}

// LiveInputs reads a few sealed inputs of deals that have not ended.
func (s *Store) LiveInputs(ctx context.Context) ([]SealedInput, error) {
	return s.sealedInputs(ctx, liveInputSQL)
}

func (s *Store) sealedInputs(ctx context.Context, statement string, args ...any) ([]SealedInput, error) {
	rows, err := s.pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SealedInput])
	return all, outage(err)
}

// Live counts what needs the server secret that it was sealed under: deals that
// hold an input and have not ended, and pending certificates.
func (s *Store) Live(ctx context.Context) (deals, certificates int, err error) {
	err = s.pool.QueryRow(ctx, liveSQL).Scan(&deals, &certificates)
	return deals, certificates, outage(err)
}

// LoseDeals ends the deals that Live counts as EXPIRED.
func (s *Store) LoseDeals(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, loseDealsSQL)
	return outage(err)
}

// rotateTries bounds how often RotateSecret waits for the writes under way.
const rotateTries = 30

// RotateSecret puts another server secret in force in the place of one. No write
// under the latter commits afterwards together with a record of a replay, and
// none that begins afterwards: such a call gets ErrSecretMoved. It waits for the
// calls under way, and new ones wait for it, for 2 seconds at most; it is false
// where another one than from is in force.
func (s *Store) RotateSecret(ctx context.Context, from, to []byte) (done bool, err error) {
	for range rotateTries {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			// Longer than Postgres takes to cancel an automatic vacuum in its way.
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "LOCK TABLE idempotency IN SHARE MODE"); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, rotateSecretSQL, to, from)
			done = tag.RowsAffected() > 0
			return err
		})
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
			return done, outage(err)
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(time.Second): // for the calls that waited
		}
	}
	return false, outage(err)
}
