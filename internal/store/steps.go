package store

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
)

var (
	lockShareSQL          = query("lock_share")
	commitSQL             = query("commit")
	revealSQL             = query("reveal")
	rejectSQL             = query("reject")
	firstMissingCommitSQL = query("first_missing_commit")
	firstMissingRevealSQL = query("first_missing_reveal")
	advanceSQL            = query("advance")
	closeRevealsSQL       = query("close_reveals")
	endSQL                = query("end")
	sealedInputsSQL       = query("sealed_inputs")
	partySQL              = query("party")
)

// Commit inserts a commitment. False means that nothing was done: the party has
// committed, or the deal takes no commitments (any more).
func (s *Store) Commit(ctx context.Context, dealID string, party int, commitment [32]byte, r *Replay) (bool, error) {
	return s.commits.insert(ctx, dealID, party, commitment[:], r)
}

// Reveal inserts a reveal, its input and salt sealed. False as in Commit.
func (s *Store) Reveal(ctx context.Context, dealID string, party int, sealed []byte, r *Replay) (bool, error) {
	return s.reveals.insert(ctx, dealID, party, sealed, r)
}

// FirstMissingCommit is the first party from `from` on that has not committed;
// none is false.
func (s *Store) FirstMissingCommit(ctx context.Context, dealID string, from int) (party int, some bool, err error) {
	return s.firstMissing(ctx, firstMissingCommitSQL, dealID, from)
}

// FirstMissingReveal is the same for reveals.
func (s *Store) FirstMissingReveal(ctx context.Context, dealID string, from int) (party int, some bool, err error) {
	return s.firstMissing(ctx, firstMissingRevealSQL, dealID, from)
}

func (s *Store) firstMissing(ctx context.Context, statement, dealID string, from int) (party int, some bool, err error) {
	err = s.pool.QueryRow(ctx, statement, dealID, from).Scan(&party)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return party, err == nil, outage(err)
}

// Advance moves a deal to which all have committed to REVEALING; it does
// nothing to any other.
func (s *Store) Advance(ctx context.Context, dealID string) error {
	_, err := s.pool.Exec(ctx, advanceSQL, dealID)
	return outage(err)
}

// CloseReveals notes that all have revealed to a random.v1 deal; it does nothing
// to any other.
func (s *Store) CloseReveals(ctx context.Context, dealID string) error {
	_, err := s.pool.Exec(ctx, closeRevealsSQL, dealID)
	return outage(err)
}

// Ending is the end of a deal: its last state, and the certificate where there
// will be one. It was worked out from the counts Commits and Reveals, and End
// does nothing where they are no longer true.
type Ending struct {
	DealID          string
	From, To        deal.State
	Commits         int
	Reveals         int
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	VoidFlakers     []int
	CertID          *string // nil: no certificate
	Payload         []byte  // the certificate's signing bytes
	MAC             []byte  // over CertID and Payload, under the server secret
	At              int64   // unix seconds
}

// End writes an ending. False means that the deal has changed since: read it again.
func (s *Store) End(ctx context.Context, e *Ending) (bool, error) {
	return s.locked(ctx, lockUpdateSQL, e.DealID, endSQL, e.DealID, e.From, e.To, e.Commits, e.Reveals,
		e.RevealsClosedAt, e.ComputedAt, e.Result, e.VoidFlakers, e.CertID, e.Payload, e.At, e.MAC)
}

// Reject inserts a reveal that rejects and ends the deal VOID, in one
// transaction: nothing can be computed in between. e.Reveals is the count
// before this reveal. False as in End.
func (s *Store) Reject(ctx context.Context, e *Ending, party int, sealed []byte, r *Replay) (bool, error) {
	scope, body, _, lifetime := r.columns()
	return s.locked(ctx, lockUpdateSQL, e.DealID, rejectSQL, e.DealID, party, sealed, e.At, scope, body, lifetime,
		e.Commits, e.Reveals, e.RevealsClosedAt, e.VoidFlakers, e.CertID, e.Payload, e.MAC)
}

// SealedInputs are the encrypted inputs of those that have revealed, in party
// order; nil entries were purged.
func (s *Store) SealedInputs(ctx context.Context, dealID string) ([][]byte, error) {
	rows, err := s.pool.Query(ctx, sealedInputsSQL, dealID)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	return all, outage(err)
}

// Party reads a party's own commitment (`sha256:` and 64 hex digits) and whether
// it has revealed, or ErrNotFound where it has not committed.
func (s *Store) Party(ctx context.Context, dealID string, party int) (commitment *string, revealed bool, err error) {
	var raw []byte
	err = s.pool.QueryRow(ctx, partySQL, dealID, party).Scan(&raw, &revealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, ErrNotFound
	}
	if err != nil {
		return nil, false, outage(err)
	}
	text := commitmentText(raw)
	return &text, revealed, nil
}

func commitmentText(raw []byte) string { return "sha256:" + hex.EncodeToString(raw) }
