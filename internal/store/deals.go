package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
)

var (
	createDealSQL = query("create_deal")
	staticSQL     = query("static")
	statusSQL     = query("status")
	standingsSQL  = query("standings")
	cancelSQL     = query("cancel")
	lockUpdateSQL = query("lock_update")
)

// Static is what never changes about a deal once it is created. Times are unix
// seconds.
type Static struct {
	DealID         string
	OwnerHash      []byte // SHA-256 of the API key that created it
	Algorithm      string
	Params         []byte // RFC 8785
	Mode           string
	Retention      string
	Labels         []string
	CommitDeadline int64
	RevealDeadline int64
	CreatedAt      int64
	ChainHash      *string // random.v1 only, like the two below
	BeaconRound    *int64
	RoundTime      *int64
}

// CreateDeal inserts a deal and its parties. ok is false where commit_deadline
// is not after now, the database's clock.
func (s *Store) CreateDeal(ctx context.Context, d *Static, tokenHashes [][]byte, r *Replay) (now int64, ok bool, err error) {
	scope, body, response, lifetime := r.columns()
	err = s.pool.QueryRow(ctx, createDealSQL, d.DealID, d.OwnerHash, d.Algorithm, d.Params, d.Mode, d.Retention, d.Labels, tokenHashes,
		d.CommitDeadline, d.RevealDeadline, d.ChainHash, d.BeaconRound, d.RoundTime, scope, body, response, lifetime).Scan(&now, &ok)
	return now, ok, outage(replayed(err))
}

// Static reads what never changes, or ErrNotFound.
func (s *Store) Static(ctx context.Context, dealID string) (*Static, error) {
	d := &Static{DealID: dealID}
	err := s.pool.QueryRow(ctx, staticSQL, dealID).Scan(&d.OwnerHash, &d.Algorithm, &d.Params, &d.Mode, &d.Retention, &d.CommitDeadline,
		&d.RevealDeadline, &d.CreatedAt, &d.ChainHash, &d.BeaconRound, &d.RoundTime, &d.Labels)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return d, outage(err)
}

// Status is what changes about a deal, read in one snapshot at Now.
type Status struct {
	Phase           deal.State
	CommitsClosedAt *int64
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	VoidFlakers     []int
	CertID          *string
	Published       bool // the certificate has its leaf
	Commits         int
	Reveals         int
	LastReveal      int64
	Now             int64 // unix seconds
	NowMilli        int64 // the same in milliseconds
}

// Standing is one party's part of a deal.
type Standing struct {
	Commitment *string // `sha256:` and 64 hex digits
	Committed  int64   // unix seconds; 0: not
	Revealed   bool
	RevealedAt int64
}

func (s *Status) scan(row pgx.Row) error {
	defer func() { s.Now = s.NowMilli / 1000 }()
	return row.Scan(&s.Phase, &s.CommitsClosedAt, &s.RevealsClosedAt, &s.ComputedAt, &s.Result, &s.VoidFlakers, &s.CertID, &s.Published,
		&s.Commits, &s.Reveals, &s.LastReveal, &s.NowMilli)
}

// Status reads a deal's changing part, or ErrNotFound.
func (s *Store) Status(ctx context.Context, dealID string) (*Status, error) {
	var st Status
	err := st.scan(s.pool.QueryRow(ctx, statusSQL, dealID))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return &st, outage(err)
}

// Standings reads the status and every party's standing, in party order, in
// one snapshot.
func (s *Store) Standings(ctx context.Context, dealID string) (*Status, []Standing, error) {
	batch := &pgx.Batch{}
	// REPEATABLE READ: both statements see the same snapshot.
	batch.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	var st Status
	var all []Standing
	batch.Queue(statusSQL, dealID).QueryRow(st.scan)
	batch.Queue(standingsSQL, dealID).Query(func(rows pgx.Rows) error {
		var err error
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Standing, error) {
			var p Standing
			var commitment []byte
			err := row.Scan(&commitment, &p.Committed, &p.Revealed, &p.RevealedAt)
			if commitment != nil {
				text := commitmentText(commitment)
				p.Commitment = &text
			}
			return p, err
		})
		return err
	})
	batch.Queue("COMMIT")
	err := s.pool.SendBatch(ctx, batch).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, ErrNotFound
	}
	return &st, all, outage(err)
}

// Cancel ends a deal that no counterparty has committed to; false where it is
// too late for that.
func (s *Store) Cancel(ctx context.Context, dealID string, r *Replay) (bool, error) {
	scope, body, response, lifetime := r.columns()
	return s.locked(ctx, lockUpdateSQL, dealID, cancelSQL, dealID, scope, body, response, lifetime)
}
