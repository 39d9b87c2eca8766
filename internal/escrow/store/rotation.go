package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

var (
	rotationSQL      = query("rotation")
	resealNextSQL    = query("reseal_next")
	resealSQL        = query("reseal")
	pendingMACsSQL   = query("pending_macs")
	setMACSQL        = query("set_mac")
	forgetSecretsSQL = query("forget_secrets")
)

// Rotation is the progress of a rotation of the server secret. To reseal an input is to
// re-encrypt it under the secret in force.
type Rotation struct {
	SecretState
	After   *SealedInput // only inputs after this deal and party are left to reseal; nil: no input is left
	Now     int64        // unix seconds
	Replays int          // idempotency records that may need a former secret
	Inputs  int          // inputs that are not yet re-encrypted under the secret in force
}

// Rotation returns the progress of a rotation, or ErrNotFound if no secret is
// recorded. replayTime is the longest lifetime of an idempotency record, in seconds. The
// counts Replays and Inputs stop at `limit`, even if there are more.
func (s *Store) Rotation(ctx context.Context, replayTime int64, limit int) (r Rotation, err error) {
	var deal *string
	var party int
	err = s.pool.QueryRow(ctx, rotationSQL, replayTime, limit).Scan(&r.Fingerprint, &r.Former, &r.Since, &deal, &party, &r.Now, &r.Replays, &r.Inputs)
	if deal != nil {
		r.After = &SealedInput{DealID: *deal, Party: party}
	}
	return r, translate(err)
}

// InputsAfter returns at most `limit` inputs, in the order of deal and party. The list starts
// after the input `last`, and ends early once its inputs have the given number of bytes.
func (s *Store) InputsAfter(ctx context.Context, last SealedInput, limit, bytes int) ([]SealedInput, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[SealedInput], resealNextSQL, last.DealID, last.Party, limit, bytes)
}

// Reseal replaces the stored inputs `read` by `fresh`: the same inputs, encrypted under the
// secret with this fingerprint. It does not replace an input that has changed since the read.
// It also records that the re-encryption continues after the input `last`; nil: no input is
// left. If another secret is in force, Reseal does nothing.
func (s *Store) Reseal(ctx context.Context, fingerprint []byte, read []SealedInput, fresh [][]byte, last *SealedInput) error {
	deals, parties, sealed := make([]string, len(read)), make([]int, len(read)), make([][]byte, len(read))
	for i, in := range read {
		deals[i], parties[i], sealed[i] = in.DealID, in.Party, in.Sealed
	}
	var deal *string
	var party *int
	if last != nil {
		deal, party = &last.DealID, &last.Party
	}
	_, err := s.pool.Exec(ctx, resealSQL, deals, parties, sealed, fresh, fingerprint, deal, party)
	return translate(err)
}

// PendingMAC is a pending certificate (one that is not in the log yet) and its MAC.
type PendingMAC struct {
	CreatedAt int64 // unix seconds
	CertID    string
	Payload   []byte
	MAC       []byte
}

// PendingMACs returns at most `limit` certificates that are not in the log yet, in the order of
// creation, starting after the certificate `last`.
func (s *Store) PendingMACs(ctx context.Context, last PendingMAC, limit int) ([]PendingMAC, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[PendingMAC], pendingMACsSQL, last.CreatedAt, last.CertID, limit)
}

// SetMAC replaces p's MAC by `mac`. It does nothing if the certificate is published or its
// stored MAC is not p.MAC.
func (s *Store) SetMAC(ctx context.Context, p PendingMAC, mac []byte) error {
	_, err := s.pool.Exec(ctx, setMACSQL, p.CertID, p.MAC, mac)
	return translate(err)
}

// ForgetSecrets ends the rotation to the secret with this fingerprint. It records that stored
// data no longer needs former secrets. It returns false and changes nothing if another secret
// is in force, if inputs are left to re-encrypt, or if there is no rotation to end.
func (s *Store) ForgetSecrets(ctx context.Context, fingerprint []byte) (bool, error) {
	tag, err := s.pool.Exec(ctx, forgetSecretsSQL, fingerprint)
	return tag.RowsAffected() > 0, translate(err)
}
