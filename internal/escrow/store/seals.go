package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The states of a stored seal. The migration of the table seals says what they mean.
const (
	SealPending = "sealed"
	SealOpened  = "opened"
	SealFailed  = "failed"
)

// PendingSeal is a seal that is not opened yet.
type PendingSeal struct {
	Party      int
	Sealed     []byte // the encrypted text
	Commitment []byte // the party's commitment
}

// PendingSeals returns at most `limit` pending seals of a deal, in party order. The list ends early
// once its seals have the given number of bytes.
func (s *Store) PendingSeals(ctx context.Context, dealID string, limit, bytes int) ([]PendingSeal, error) {
	return sized(ctx, s, bytes, func(ctx context.Context) ([]PendingSeal, error) {
		return rows(ctx, s.pool, pgx.RowToStructByPos[PendingSeal], sql("pending_seals"), dealID, limit, bytes)
	})
}

// FailSeals marks pending seals as failed. It keeps their texts.
func (s *Store) FailSeals(ctx context.Context, dealID string, parties []int) error {
	_, err := s.pool.Exec(ctx, sql("fail_seals"), dealID, parties)
	return translate(err)
}

// SealStatus says what happened to a party's seal.
type SealStatus struct {
	Party int
	State string // SealPending, SealOpened, SealFailed or "unused"
	Hash  []byte // SHA-256 of the seal's text
	At    int64  // when it was stored, in unix seconds
}

// Seals returns the seals of the parties from `first` to `last`, in party order.
func (s *Store) Seals(ctx context.Context, dealID string, first, last int) ([]SealStatus, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[SealStatus], sql("seals"), dealID, first, last)
}

// Closing is what the closing of a deal states, in party order.
type Closing struct {
	Leaf        *int64 // leaf index; nil: not in the log yet; NoClosing: the log has another closing of the deal
	Commitments [][]byte
	Seals       [][]byte // hash of each party's seal; nil: the party did not seal
}

// NoClosing is the stored leaf index of a deal of which the log has another closing, or of which a restore
// lost commitments.
const NoClosing = -1

// ClosingParty is the memory of a party in a Closing and in a text made of it, in bytes.
const ClosingParty = 512

// Closing returns what the closing of a deal states, as far as its parties have committed; `parties` is their
// number.
func (s *Store) Closing(ctx context.Context, dealID string, parties int) (Closing, error) {
	return sized(ctx, s, ClosingParty*parties, func(ctx context.Context) (c Closing, err error) {
		found, _ := s.pool.Query(ctx, sql("closing"), dealID) // ForEachRow returns the error
		var commitment, seal []byte
		_, err = pgx.ForEachRow(found, []any{&c.Leaf, &commitment, &seal}, func() error {
			c.Commitments, c.Seals = append(c.Commitments, commitment), append(c.Seals, seal)
			return nil
		})
		return c, err
	})
}

// SetClosing stores the leaf index of a deal's closing, unless one is stored.
func (s *Store) SetClosing(ctx context.Context, dealID string, leaf int64) error {
	_, err := s.pool.Exec(ctx, sql("set_closing"), dealID, leaf)
	return translate(err)
}

// SealBytes returns how many bytes EachSeal reads; `parties` is the number of parties.
func (s *Store) SealBytes(ctx context.Context, dealID string, parties int) (int, error) {
	return sized(ctx, s, ClosingParty*parties, func(ctx context.Context) (n int, err error) {
		return n, s.pool.QueryRow(ctx, sql("seal_bytes"), dealID).Scan(&n)
	})
}

// EachSeal calls `do` for every seal whose text is stored, in party order. They have at most `bytes` bytes.
func (s *Store) EachSeal(ctx context.Context, dealID string, bytes int, do func(party int, sealed []byte) error) error {
	_, err := sized(ctx, s, bytes, func(ctx context.Context) (none struct{}, err error) {
		found, _ := s.pool.Query(ctx, sql("all_seals"), dealID) // ForEachRow returns the error
		var party int
		var sealed []byte
		_, err = pgx.ForEachRow(found, []any{&party, &sealed}, func() error { return do(party, sealed) })
		return none, err
	})
	return err
}
