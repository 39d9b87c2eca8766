package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	rotationSQL      = query("rotation")
	resealNextSQL    = query("reseal_next")
	resealSQL        = query("reseal")
	forgetSecretsSQL = query("forget_secrets")
)

// SettleTime is how long after a rotation a process may still use the former server secret. No SQL
// statement runs longer, and every process looks for a rotation more often.
const SettleTime = time.Minute

// Rotation is the progress of a rotation of the server secret. To reseal an input is to
// re-encrypt it under the secret in force.
type Rotation struct {
	SecretState
	Now     int64 // unix seconds
	Replays int   // idempotency records that may need a former secret
	Inputs  int   // inputs that are encrypted under a former secret
	Pending int   // certificates that are not in the log yet and may need a former secret
}

// Rotation returns the progress of a rotation, or ErrNotFound if no secret is recorded. replayTime is
// the longest lifetime of an idempotency record, in seconds. The counts stop at `limit`.
func (s *Store) Rotation(ctx context.Context, replayTime int64, limit int) (r Rotation, err error) {
	err = s.pool.QueryRow(ctx, rotationSQL, replayTime, int64(SettleTime/time.Second), limit).
		Scan(&r.Fingerprint, &r.Former, &r.Since, &r.Now, &r.Replays, &r.Inputs, &r.Pending)
	return r, translate(err)
}

// SealedInput is one party's input in its stored, encrypted form.
type SealedInput struct {
	DealID string
	Party  int
	Sealed []byte
}

// InputsToReseal returns at most `limit` inputs that are encrypted under a former secret. The list
// ends early once its inputs have the given number of bytes.
func (s *Store) InputsToReseal(ctx context.Context, limit, bytes int) ([]SealedInput, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[SealedInput], resealNextSQL, limit, bytes)
}

// Reseal replaces the stored inputs `read` by `fresh`: the same inputs, encrypted under the
// secret with this fingerprint. An input without a replacement (nil) cannot be decrypted, and is
// not read again. Reseal does not replace an input that has changed since the read. If another
// secret is in force, it does nothing.
func (s *Store) Reseal(ctx context.Context, fingerprint []byte, read []SealedInput, fresh [][]byte) error {
	deals, parties, sealed := make([]string, len(read)), make([]int, len(read)), make([][]byte, len(read))
	for i, in := range read {
		deals[i], parties[i], sealed[i] = in.DealID, in.Party, in.Sealed
	}
	_, err := s.pool.Exec(ctx, resealSQL, deals, parties, sealed, fresh, fingerprint)
	return translate(err)
}

// ForgetSecrets records that stored data no longer needs former secrets. It returns false and changes
// nothing if another secret is in force, if inputs are left to reseal, or if no rotation is under way.
func (s *Store) ForgetSecrets(ctx context.Context, fingerprint []byte) (bool, error) {
	tag, err := s.pool.Exec(ctx, forgetSecretsSQL, fingerprint)
	return tag.RowsAffected() > 0, translate(err)
}
