package store

import (
	"context"
	"encoding/hex"
	"fmt"

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
	created, err := s.creations.do(ctx, d)
	if err == nil && created.SecretReplaced {
		err = ErrSecretReplaced
	}
	return created, err
}

func (s *Store) newCreations() *coalescer[NewDeal, Created] {
	c := &coalescer[NewDeal, Created]{
		size: func(d NewDeal) int { return len(d.Params) + d.TextBytes() + 300*len(d.Labels) + 72*len(d.SeatKeys) },
	}
	c.run = func(ctx context.Context, deals []NewDeal, _ bool) ([]Created, error) {
		created, _ := s.pool.Query(ctx, sql("create_deal"), creationColumns(deals)...) // CollectRows returns the error
		return pgx.CollectRows(created, pgx.RowToStructByPos[Created])
	}
	return c.start(s.slots)
}

func creationColumns(deals []NewDeal) []any {
	var ids, algorithms, modes, retentions, seatDeals, labels []string
	var owners, params, scopes, bodies, responses, tokens, secrets [][]byte
	var counts, seats, limits []int
	var commitBy, revealBy, lifetimes []int64
	var chains, keys []*string
	var rounds, times []*int64
	var seals, titles, messages []*string
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
		for i, label := range d.Labels {
			seatDeals, seats, labels, tokens = append(seatDeals, d.DealID), append(seats, i), append(labels, label), append(tokens, d.TokenHashes[i])
			keys = append(keys, d.SeatKey(i))
		}
	}
	return []any{ids, owners, algorithms, params, modes, retentions, counts, commitBy, revealBy, chains, rounds, times,
		scopes, bodies, responses, lifetimes, seatDeals, seats, labels, tokens, keys, secrets, seals, limits, titles, messages}
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
		&d.RevealDeadline, &d.CreatedAt, &d.ChainHash, &d.BeaconRound, &d.RoundTime, &d.Seals, &d.InputLimit, &d.Title, &d.Message, &d.Labels, &d.SeatKeys)
	if err != nil {
		return nil, 0, translate(err)
	}
	return d, bytes, nil
}

// Snapshot is the changing part of a deal, read at one moment. Times are unix
// seconds of the database's clock.
type Snapshot struct {
	deal.Snapshot
	CommitsClosedAt *int64
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	resultBytes     int // of the stored result
	CertID          *string
	Published       bool   // the certificate has a leaf in the log
	LeafIndex       *int64 // nil: no leaf when the row was read; Published may become true later
	Opened          bool   // (only with Selection.attested) a reveal came from a seal
	CertifiedSize   int64  // the largest tree size that is stored as cosigned by a quorum of witnesses; 0: none
	Now             int64  // time of the read
	NowMilli        int64  // Now, in unix milliseconds

	Parts []PartyStatus // one for each party from Selection.first to Selection.last
	First int           // party index of Parts[0]
	// Sealed (only with Selection.inputs) holds one encrypted input for each stored reveal, in party
	// order; nil: purged. If InputBytes is above SmallRead, Sealed is nil: Store.Inputs reads the inputs.
	Sealed     [][]byte
	InputBytes int // bytes of the stored inputs; only with Selection.inputs
	// AttestedBy (only with Selection.attested) holds the certificate's attested_by for each of Parts;
	// nil: not committed, or no seat key signed the commitment.
	AttestedBy []*string
}

// PartyStatus says what one party of a deal has done.
type PartyStatus struct {
	Commitment *string // `sha256:` and 64 hex digits; nil: not committed
	Revealed   bool
}

// Selection says what a snapshot reads in addition to the deal's row and counts.
type Selection struct {
	first, last int  // party indexes of the first and the last PartyStatus to read
	inputs      bool // whether to read Snapshot.Sealed
	attested    bool
	bytes       int // estimated size of the snapshot; 0: too small to count
}

// NoParties selects no party: Snapshot.Parts is empty.
var NoParties = Selection{last: -1}

// OnlyInputs selects no party, but InputBytes, and Sealed if it is small; `parties` is their number. For a deal of
// many parties it counts as a large read, although its answer is small: it adds up the lengths of all inputs.
func OnlyInputs(parties int) Selection {
	return Selection{last: -1, inputs: true, bytes: min(budget.MaxSmall, max(SmallRead, 64*parties))}
}

// WithInputs selects all parties, AttestedBy, and Sealed if it is small; `parties` is their number.
func WithInputs(parties int) Selection {
	s := Attested(parties)
	s.inputs, s.bytes = true, s.bytes+min(SmallRead, 512*parties) // of SmallRead at most, few inputs use much
	return s
}

// AllParties selects the PartyStatus of every party; `parties` is their number.
func AllParties(parties int) Selection { return Selection{last: parties - 1, bytes: 128 * parties} }

// Attested selects all parties and AttestedBy; `parties` is their number.
func Attested(parties int) Selection {
	return Selection{last: parties - 1, attested: true, bytes: 512 * parties}
}

// OneParty selects the PartyStatus of one party.
func OneParty(party int) Selection { return Selection{first: party, last: party} }

// More reports whether s selects Sealed or AttestedBy.
func (s Selection) More() bool { return s.inputs || s.attested }

// Snapshot returns the current state of a deal, or ErrNotFound. It reads a deal with a large result twice: only the
// first read says how large the result is.
func (s *Store) Snapshot(ctx context.Context, dealID string, selection Selection) (*Snapshot, error) {
	query := snapshotOf{dealID, selection, SmallRead}
	alone := func(bytes int) (*Snapshot, error) { return large(ctx, s, bytes, s.snapshots.run, query) }
	var snapshot *Snapshot
	var err error
	if selection.bytes > 2*SmallRead { // with parties that use all of their estimate, and inputs
		snapshot, err = alone(selection.bytes)
	} else {
		snapshot, err = s.snapshots.do(ctx, query)
	}
	if err == nil && snapshot != nil && snapshot.resultBytes > SmallRead {
		query.result = snapshot.resultBytes // final, so the second read finds no longer one
		snapshot, err = alone(selection.bytes + resultCopies*query.result)
	}
	if err == nil && snapshot == nil {
		return nil, ErrNotFound
	}
	return snapshot, err
}

const (
	inputsPage = 1 << 20 // a page of Store.Inputs with this many bytes takes no further input
	mostInPage = 1024    // maximum number of inputs in a page

	// InputsPage is the most memory of a page of Store.Inputs, in bytes.
	InputsPage = inputsPage + 1<<19
)

// Inputs calls `each` for the stored inputs of a deal in party order. It reads them in pages of about a
// MiB. The deal MUST accept no more reveals; a page can still have purged inputs, whose Sealed is nil.
func (s *Store) Inputs(ctx context.Context, dealID string, parties int, each func(SealedInput) error) error {
	read := func(ctx context.Context, first []int, _ bool) ([][]SealedInput, error) {
		page, err := rows(ctx, s.pool, pgx.RowToStructByPos[SealedInput], sql("inputs"), dealID, first[0], inputsPage, first[0]+mostInPage)
		return [][]SealedInput{page}, err
	}
	for first := 0; first < parties; {
		page, err := large(ctx, s, InputsPage, read, first)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return ErrNotFound
		}
		for i := range page {
			if err := each(page[i]); err != nil {
				return err
			}
			page[i].Sealed = nil
		}
		first = page[len(page)-1].Party + 1
	}
	return nil
}

const resultCopies = 3 // how many times a result is in memory while an answer is made of it

type snapshotOf struct {
	dealID string
	want   Selection
	result int // the most bytes of a result to read
}

func (s *Store) newSnapshots() *coalescer[snapshotOf, *Snapshot] {
	c := &coalescer[snapshotOf, *Snapshot]{size: func(q snapshotOf) int { return q.want.bytes }, fill: fillTime}
	c.run = reads(s, sql("snapshot"), func(calls []snapshotOf) []any {
		deals, inputs, attested := make([]string, len(calls)), make([]bool, len(calls)), make([]bool, len(calls))
		first, last, result := make([]int, len(calls)), make([]int, len(calls)), SmallRead
		for i, q := range calls {
			result = max(result, q.result)
			deals[i], first[i], last[i] = q.dealID, q.want.first, q.want.last
			inputs[i], attested[i] = q.want.inputs, q.want.attested
		}
		return []any{deals, first, last, inputs, attested, SmallRead, result}
	}, scanSnapshot)
	return c.start(s.slots)
}

func scanSnapshot(row pgx.CollectableRow, n *int, calls []snapshotOf) (*Snapshot, error) {
	var parties int
	var committed, revealed []int
	var commitments [][]byte
	var attested []*string
	var sealTime *int64
	var inputBytes *int
	s := &Snapshot{}
	err := row.Scan(n, &parties, &s.Phase, &s.CommitsClosedAt, &s.RevealsClosedAt, &s.ComputedAt, &s.Result, &s.resultBytes, &s.VoidFlakers, &s.CertID, &s.LeafIndex, &s.CertifiedSize,
		&s.Commits, &s.Reveals, &s.LastReveal, &s.NowMilli, &committed, &commitments, &revealed, &inputBytes, &s.Sealed, &attested, &sealTime, &s.Pending, &s.Opened)
	if err != nil {
		return nil, err
	}
	s.Now, s.Published = s.NowMilli/1000, s.LeafIndex != nil
	if sealTime != nil {
		s.SealTime = *sealTime
	}
	if inputBytes != nil {
		s.InputBytes = *inputBytes
	}
	selection := calls[*n-1].want
	s.First = selection.first
	s.Parts = make([]PartyStatus, max(0, min(selection.last+1, parties)-selection.first))
	if end := selection.first + len(s.Parts); len(committed) > 0 && committed[len(committed)-1] >= end || len(revealed) > 0 && revealed[len(revealed)-1] >= end {
		return nil, fmt.Errorf("store: deal %s has %d parties, but the party index of a stored commitment or reveal is too high", calls[*n-1].dealID, parties)
	}
	for i, party := range committed {
		s.Parts[party-selection.first].Commitment = new(CommitmentText(commitments[i]))
	}
	if selection.attested {
		s.AttestedBy = make([]*string, len(s.Parts))
		for i, party := range committed {
			s.AttestedBy[party-selection.first] = attested[i]
		}
	}
	for _, party := range revealed {
		s.Parts[party-selection.first].Revealed = true
	}
	return s, nil
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
