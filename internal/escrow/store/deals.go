package store

import (
	"context"
	"encoding/hex"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

// Declaration is the part of a deal that never changes after its creation.
type Declaration struct {
	DealID    string
	OwnerHash []byte // SHA-256 of the API key that created the deal
	CreatedAt int64  // unix seconds

	// InputLimit is the most bytes of a party's input. It is fixed at the creation, because a
	// commitment cannot be changed.
	InputLimit int
	deal.Terms
}

// NewDeal is a deal to create.
type NewDeal struct {
	*Declaration          // CreatedAt is ignored: the database's clock sets created_at
	TokenHashes  [][]byte // SHA-256 of each party's invite token
	Replay       *Replay
}

// Created is the outcome of CreateDeal.
type Created struct {
	Now int64 // time of the database's clock in unix seconds; if OK, the deal's created_at
	OK  bool  // false: nothing was stored, because SecretReplaced is true or commit_deadline is not after Now

	SecretReplaced bool // true: a call of the statement used a server secret that is not in force (ErrSecretReplaced)
}

// CreateDeal stores a deal and its parties, or returns ErrSecretReplaced.
func (s *Store) CreateDeal(ctx context.Context, d NewDeal) (Created, error) {
	created, err := Created{}, error(nil)
	if bytes := d.bytes(); bytes > SmallWrite {
		created, err = largeWrite(ctx, s, bytes, s.create, d)
	} else {
		created, err = s.creations.do(ctx, d)
	}
	if err == nil && created.SecretReplaced {
		err = ErrSecretReplaced
	}
	return created, err
}

func (s *Store) newCreations() *coalescer[NewDeal, Created] {
	c := &coalescer[NewDeal, Created]{size: NewDeal.bytes}
	c.run = s.create
	return c.start(s.slots)
}

// bytes estimates the arguments of create_deal.
func (d NewDeal) bytes() int {
	return len(d.Params) + d.TextBytes() + 300*len(d.Labels) + 72*len(d.SeatKeys)
}

func (s *Store) create(ctx context.Context, deals []NewDeal, _ bool) ([]Created, error) {
	created, _ := s.pool.Query(ctx, sql("create_deal"), creationColumns(deals)...) // CollectRows returns the error
	return pgx.CollectRows(created, pgx.RowToStructByPos[Created])
}

func creationColumns(deals []NewDeal) []any {
	var ids, algorithms, modes, retentions, seatDeals, labels []string
	var owners, params, scopes, bodies, responses, tokens, secrets [][]byte
	var counts, seats, limits []int
	var commitBy, revealBy, lifetimes []int64
	var chains, keys []*string
	var rounds, times []*int64
	var seals, titles, messages, audiences, actors []*string
	for _, d := range deals {
		scope, body, response, lifetime := d.Replay.columns()
		ids, owners, algorithms, params = append(ids, d.DealID), append(owners, d.OwnerHash), append(algorithms, d.Algorithm), append(params, d.Params)
		modes, retentions, counts = append(modes, d.Mode), append(retentions, d.Retention), append(counts, len(d.Labels))
		commitBy, revealBy = append(commitBy, d.CommitDeadline), append(revealBy, d.RevealDeadline)
		chains, rounds, times = append(chains, d.ChainHash), append(rounds, d.BeaconRound), append(times, d.RoundTime)
		scopes, bodies, responses, lifetimes = append(scopes, scope), append(bodies, body), append(responses, response), append(lifetimes, lifetime)
		secrets, seals = append(secrets, d.Replay.secret()), append(seals, optional(d.Seals))
		limits = append(limits, d.InputLimit)
		titles, messages = append(titles, optional(d.Title)), append(messages, optional(d.Message))
		audiences, actors = append(audiences, optional(d.Audience)), append(actors, optional(d.ActedBy))
		for i, label := range d.Labels {
			seatDeals, seats, labels, tokens = append(seatDeals, d.DealID), append(seats, i), append(labels, label), append(tokens, d.TokenHashes[i])
			keys = append(keys, d.SeatKey(i))
		}
	}
	return []any{ids, owners, algorithms, params, modes, retentions, counts, commitBy, revealBy, chains, rounds, times,
		scopes, bodies, responses, lifetimes, seatDeals, seats, labels, tokens, keys, secrets, seals, limits, titles, messages, audiences, actors}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// declarationCopies is how many times as large as its row a declaration is in memory, with its parsed params.
const declarationCopies = 8

// Declaration returns a deal's declaration, or ErrNotFound. It reads a large one with a second
// statement, because only the first read tells its size.
func (s *Store) Declaration(ctx context.Context, dealID string) (*Declaration, error) {
	d, bytes, err := s.declaration(ctx, dealID, SmallRead)
	if err != nil || bytes <= SmallRead {
		return d, err
	}
	return large(ctx, s, min(declarationCopies*bytes, budget.Largest), func(ctx context.Context, _ []string, _ bool) ([]*Declaration, error) {
		d, _, err := s.declaration(ctx, dealID, bytes)
		return []*Declaration{d}, err
	}, dealID)
}

func (s *Store) declaration(ctx context.Context, dealID string, most int) (_ *Declaration, bytes int, _ error) {
	d := &Declaration{DealID: dealID}
	err := s.pool.QueryRow(ctx, sql("declaration"), dealID, most).Scan(&bytes, &d.OwnerHash, &d.Algorithm, &d.Params, &d.Mode, &d.Retention, &d.CommitDeadline,
		&d.RevealDeadline, &d.CreatedAt, &d.ChainHash, &d.BeaconRound, &d.RoundTime, &d.Seals, &d.InputLimit, &d.Title, &d.Message, &d.Audience, &d.ActedBy, &d.Labels, &d.SeatKeys)
	if err != nil {
		return nil, 0, translate(err)
	}
	return d, bytes, nil
}

// CommitmentText returns a commitment in the text form of SPEC 2.6.
func CommitmentText(raw []byte) string { return "sha256:" + hex.EncodeToString(raw) }

// Progress is a summary of a deal. A call that waits for a change compares two Progress values.
// Progress changes whenever the API's view of the deal changes, except from COMPUTED to
// CERTIFIED. The counts in Acted suffice, because no commitment or reveal is ever removed.
type Progress struct {
	Phase     deal.State
	Acted     int  // COMMITTING: number of commitments; REVEALING: number of reveals; else 0
	Drawing   bool // random.v1: all parties have revealed, and the deal waits for its draw
	Published bool // the certificate has a leaf in the log
}

// State returns the state that the API shows for the deal, except that it returns COMPUTED for a
// CERTIFIED deal.
func (p Progress) State() deal.State { return deal.Snapshot{Phase: p.Phase, Commits: p.Acted}.State() }

// Same reports whether p equals other. With stateOnly, Same ignores a difference in Phase or
// Acted if State() is the same.
func (p Progress) Same(other Progress, stateOnly bool) bool {
	if stateOnly {
		return p.State() == other.State() && p.Drawing == other.Drawing && p.Published == other.Published
	}
	return p == other
}

// Progress returns the summary of the snapshot.
func (s *Snapshot) Progress() Progress {
	p := Progress{Phase: s.Phase, Published: s.Published}
	switch s.Phase {
	case deal.Committing:
		p.Acted = s.Commits
	case deal.Revealing:
		p.Acted, p.Drawing = s.Reveals, s.RevealsClosedAt != nil
	}
	return p
}

// DealProgress is the Progress of one deal.
type DealProgress struct {
	DealID string
	Progress
	Due bool // a deadline of the deal has passed, and no process has handled it yet
}

// Progress returns the Progress of each deal that exists.
func (s *Store) Progress(ctx context.Context, dealIDs []string) ([]DealProgress, error) {
	return rows(ctx, s.pool, func(row pgx.CollectableRow) (p DealProgress, err error) {
		return p, row.Scan(&p.DealID, &p.Phase, &p.Acted, &p.Drawing, &p.Published, &p.Due)
	}, sql("progress"), dealIDs)
}

// Due is a deal that deadline-worker must process now or soon (see Store.Due).
type Due struct {
	DealID string
	In     int64 // milliseconds until the deal's next step is due; 0 or less: due now
}

// Due lists the deals that deadline-worker must process, at most `limit` of each kind:
//   - deals whose deadline is at most `horizon` seconds away;
//   - deals whose seals can be opened within the horizon;
//   - random.v1 deals whose draw is due (deal.Deal.DrawAt), with seals within the horizon;
//   - deals whose certificate is more than 3 seconds old and not in the log yet, without the deals
//     in `except`.
func (s *Store) Due(ctx context.Context, horizon int64, limit int, except []string) ([]Due, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[Due], sql("due"), horizon, limit, deal.DrawDelay, append([]string{}, except...))
}

// ListComplete lists REVEALING deals in which every party has revealed, without the deals that wait
// for their draw. A process died before it ended the deal, or a revealed input cannot be decrypted
// and the deal waits for its deadline. ListComplete reads every REVEALING deal, so call it less
// often than Due.
func (s *Store) ListComplete(ctx context.Context, limit int) ([]string, error) {
	return rows(ctx, s.pool, pgx.RowTo[string], sql("complete"), limit)
}

// Load counts active deals and pending certificates. An age is in seconds since the oldest of them was
// created, by the database's clock; 0: there is none.
type Load struct {
	Committing, Revealing       int64 // deals by phase; COMMITTING includes deals shown as OPEN
	CommittingAge, RevealingAge float64
	Pending                     int64 // certificates that are not in the log yet
	PendingAge                  float64
	Overdue                     float64 // seconds since the earliest passed deadline that is not processed yet; 0: none
	DrawOverdue                 float64 // seconds since the earliest pending draw, or round of seals, became due; 0: none is due
}

// Load counts the active deals and pending certificates.
func (s *Store) Load(ctx context.Context) (l Load, err error) {
	err = s.pool.QueryRow(ctx, sql("load"), deal.DrawDelay).Scan(&l.Committing, &l.CommittingAge, &l.Revealing, &l.RevealingAge, &l.Pending, &l.PendingAge, &l.Overdue, &l.DrawOverdue)
	return l, translate(err)
}

// KeepCertified stores that a quorum of witnesses has cosigned a tree of this size.
func (s *Store) KeepCertified(ctx context.Context, size int64) error {
	_, err := s.pool.Exec(ctx, sql("keep_certified"), size)
	return translate(err)
}
