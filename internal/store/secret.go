package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var (
	serverSecretSQL = query("server_secret")
	claimSecretSQL  = query("claim_secret")
	liveInputSQL    = query("live_input")
	liveSQL         = query("live")
)

// ServerSecret reads the fingerprint of the server secret that this database is
// sealed under, or ErrNotFound where none is recorded yet.
func (s *Store) ServerSecret(ctx context.Context) (fingerprint []byte, err error) {
	err = s.pool.QueryRow(ctx, serverSecretSQL).Scan(&fingerprint)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return fingerprint, outage(err)
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
	Sealed []byte
}

// LiveInputs reads a few sealed inputs of deals that have not ended.
func (s *Store) LiveInputs(ctx context.Context) ([]SealedInput, error) {
	rows, err := s.pool.Query(ctx, liveInputSQL)
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
