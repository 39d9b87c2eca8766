package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var (
	rotateSecretSQL  = query("rotate_secret")
	rotationSQL      = query("rotation")
	resealNextSQL    = query("reseal_next")
	resealSQL        = query("reseal")
	pendingMACsSQL   = query("pending_macs")
	setMACSQL        = query("set_mac")
	forgetSecretsSQL = query("forget_secrets")
)

// Rotation is how far a rotation of the server secret is.
type Rotation struct {
	SecretState
	After   *SealedInput // the last input that was resealed; nil: all are
	Now     int64        // unix seconds
	Replays int          // that may be under a former secret
	Inputs  int          // after After
}

// Rotation reads it, or ErrNotFound. replayTime is the longest that a replay
// lasts, in seconds; replays and inputs are counted up to most.
func (s *Store) Rotation(ctx context.Context, replayTime int64, most int) (r Rotation, err error) {
	var deal *string
	var party int
	err = s.pool.QueryRow(ctx, rotationSQL, replayTime, most).Scan(&r.Fingerprint, &r.Former, &r.Since, &deal, &party, &r.Now, &r.Replays, &r.Inputs)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, ErrNotFound
	}
	if deal != nil {
		r.After = &SealedInput{DealID: *deal, Party: party}
	}
	return r, outage(err)
}

// InputsAfter reads the inputs that follow one in the order of their key, at most
// rows of them and not many more than bytes.
func (s *Store) InputsAfter(ctx context.Context, last SealedInput, rows, bytes int) ([]SealedInput, error) {
	return s.sealedInputs(ctx, resealNextSQL, last.DealID, last.Party, rows, bytes)
}

// Reseal replaces inputs by the same ones resealed, where they are still what
// was read, and notes the last one that was looked at; nil: none is left. Where
// another secret than fingerprint is in force it does nothing.
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
	return outage(err)
}

// PendingMAC is a pending certificate and its MAC.
type PendingMAC struct {
	CreatedAt int64
	CertID    string
	Payload   []byte
	MAC       []byte
}

// PendingMACs reads the pending certificates after one, in the order of their
// making.
func (s *Store) PendingMACs(ctx context.Context, last PendingMAC, most int) ([]PendingMAC, error) {
	rows, err := s.pool.Query(ctx, pendingMACsSQL, last.CreatedAt, last.CertID, most)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PendingMAC])
	return all, outage(err)
}

// SetMAC replaces the MAC of a certificate that is still pending.
func (s *Store) SetMAC(ctx context.Context, p PendingMAC, mac []byte) error {
	_, err := s.pool.Exec(ctx, setMACSQL, p.CertID, p.MAC, mac)
	return outage(err)
}

// ForgetSecrets ends a rotation to the secret in force: former ones are no longer
// needed. It is false where inputs are left, or nothing was to be ended.
func (s *Store) ForgetSecrets(ctx context.Context, fingerprint []byte) (bool, error) {
	tag, err := s.pool.Exec(ctx, forgetSecretsSQL, fingerprint)
	return tag.RowsAffected() > 0, outage(err)
}
