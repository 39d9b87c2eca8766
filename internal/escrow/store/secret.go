package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairpact/fairpact/internal/platform/database"
)

// ErrSecretReplaced is returned when a call, or another call in the same SQL statement, used a
// server secret that is not in force. The call changed nothing.
var ErrSecretReplaced = errors.New("store: another server secret is in force")

// SecretState holds the fingerprints of the server secrets that a database uses.
type SecretState struct {
	Fingerprint []byte   // fingerprint of the secret in force, which encrypts new data
	Former      [][]byte // fingerprints of former secrets that stored data still needs
	Since       int64    // when ClaimSecret, ReplaceSecret or RotateSecret set Fingerprint, in unix seconds
}

// ServerSecret returns the recorded state, or ErrNotFound if no secret is recorded yet.
func (s *Store) ServerSecret(ctx context.Context) (state SecretState, err error) {
	err = s.pool.QueryRow(ctx, sql("server_secret")).Scan(&state.Fingerprint, &state.Former, &state.Since)
	return state, translate(err)
}

// ClaimSecret records the secret with this fingerprint as the secret in force. If a secret is
// already recorded, ClaimSecret does nothing.
func (s *Store) ClaimSecret(ctx context.Context, fingerprint []byte) error {
	return s.ReplaceSecret(ctx, fingerprint, nil)
}

// ReplaceSecret records the secret with this fingerprint as the secret in force, in place of one
// that is lost. Those of the former secrets that are in `held` stay: stored data still needs them.
func (s *Store) ReplaceSecret(ctx context.Context, fingerprint []byte, held [][]byte) error {
	_, err := s.pool.Exec(ctx, sql("claim_secret"), fingerprint, held)
	return translate(err)
}

// Live counts the deals that have an input or a seal and have not ended, and the certificates that are not
// in the log yet. Both need the server secret under which they were stored.
func (s *Store) Live(ctx context.Context) (deals, certificates int, err error) {
	err = s.pool.QueryRow(ctx, sql("live")).Scan(&deals, &certificates)
	return deals, certificates, translate(err)
}

// LoseDeals ends the deals that Live counts. Call it only if their server secret is lost. The
// deals become EXPIRED, because nobody can decrypt what they hold. LoseDeals does not change the pending
// certificates: those whose MAC is under the lost secret are never issued.
func (s *Store) LoseDeals(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, sql("lose_deals"))
	return translate(err)
}

const rotateTries = 30

// RotateSecret puts the secret `to` in force in place of `from`. Both are fingerprints. It returns
// false if `from` is not in force. After it returns true, CreateDeal, InsertKey, Reveal, Reject and
// Commit with a seal return ErrSecretReplaced to a caller that uses the old secret, and store nothing.
// Cancel and Commit without a seal do not check the secret: a deal refuses a repeat of them even without
// a replay.
//
// RotateSecret makes at most rotateTries tries, each with several round trips. A try waits at
// most 2 seconds for the writes under way. New writes wait until the try ends.
func (s *Store) RotateSecret(ctx context.Context, from, to []byte) (done bool, err error) {
	for range rotateTries {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			// 2 s is longer than Postgres takes to cancel an autovacuum that has locked the table.
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "LOCK TABLE idempotency IN SHARE MODE"); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, sql("rotate_secret"), to, from)
			done = tag.RowsAffected() > 0
			return err
		})
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != database.LockTimeout {
			return done, translate(err)
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(time.Second): // gives the waiting writes time to run
		}
	}
	return false, translate(err)
}

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
}

// Rotation returns the progress of a rotation, or ErrNotFound if no secret is recorded. replayTime is
// the longest lifetime of an idempotency record, in seconds. The counts stop at `limit`.
func (s *Store) Rotation(ctx context.Context, replayTime int64, limit int) (r Rotation, err error) {
	err = s.pool.QueryRow(ctx, sql("rotation"), replayTime, limit).Scan(&r.Fingerprint, &r.Former, &r.Since, &r.Now, &r.Replays, &r.Inputs)
	return r, translate(err)
}

// SealedInput is one party's input, or its seal, in its stored, encrypted form.
type SealedInput struct {
	DealID string
	Party  int
	Sealed []byte
	Seal   bool // Sealed holds the text of a seal
}

// InputsToReseal returns at most `limit` inputs and seals that are encrypted under a former secret. The list
// ends early once its inputs have the given number of bytes.
func (s *Store) InputsToReseal(ctx context.Context, limit, bytes int) ([]SealedInput, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[SealedInput], sql("reseal_next"), limit, bytes)
}

// Reseal replaces the stored inputs `read` by `fresh`: the same inputs, encrypted under the
// secret with this fingerprint. An input without a replacement (nil) cannot be decrypted, and is
// not read again. Reseal does not replace an input that has changed since the read. If another
// secret is in force, it does nothing.
func (s *Store) Reseal(ctx context.Context, fingerprint []byte, read []SealedInput, fresh [][]byte) error {
	deals, parties, sealed, seals := make([]string, len(read)), make([]int, len(read)), make([][]byte, len(read)), make([]bool, len(read))
	for i, in := range read {
		deals[i], parties[i], sealed[i], seals[i] = in.DealID, in.Party, in.Sealed, in.Seal
	}
	_, err := s.pool.Exec(ctx, sql("reseal"), deals, parties, sealed, fresh, fingerprint, seals)
	return translate(err)
}

// PendingMAC is a pending certificate (one that is not in the log yet) and its MAC.
type PendingMAC struct {
	CreatedAt int64 // unix seconds
	CertID    string
	Payload   []byte
	MAC       []byte
}

// PendingMACs returns at most `limit` pending certificates in the order of creation, starting after
// the certificate `last`.
func (s *Store) PendingMACs(ctx context.Context, last PendingMAC, limit int) ([]PendingMAC, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[PendingMAC], sql("pending_macs"), last.CreatedAt, last.CertID, limit)
}

// SetMAC replaces p's MAC by `mac`. It does nothing if the certificate is published or its stored MAC
// is not p.MAC.
func (s *Store) SetMAC(ctx context.Context, p PendingMAC, mac []byte) error {
	_, err := s.pool.Exec(ctx, sql("set_mac"), p.CertID, p.MAC, mac)
	return translate(err)
}

// ForgetSecrets records that stored data no longer needs former secrets. It returns false and changes
// nothing if another secret is in force, if inputs are left to reseal, or if no rotation is under way.
func (s *Store) ForgetSecrets(ctx context.Context, fingerprint []byte) (bool, error) {
	tag, err := s.pool.Exec(ctx, sql("forget_secrets"), fingerprint)
	return tag.RowsAffected() > 0, translate(err)
}
