package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

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
	byItself := func(bytes int) (*Snapshot, error) { return large(ctx, s, bytes, s.snapshots.run, query) }
	var snapshot *Snapshot
	var err error
	if selection.bytes > 2*SmallRead { // with parties that use all of their estimate, and inputs
		snapshot, err = byItself(selection.bytes)
	} else {
		snapshot, err = s.snapshots.do(ctx, query)
	}
	if err == nil && snapshot != nil && snapshot.resultBytes > SmallRead {
		query.result = snapshot.resultBytes // final, so the second read finds no longer one
		snapshot, err = byItself(selection.bytes + resultCopies*query.result)
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
	read := reads(s, sql("snapshot"), func(calls []snapshotOf) []any {
		deals, inputs, attested, counts := make([]string, len(calls)), make([]bool, len(calls)), make([]bool, len(calls)), make([]bool, len(calls))
		first, last, result := make([]int, len(calls)), make([]int, len(calls)), SmallRead
		counted := make(map[string]bool, len(calls))
		for i, q := range calls {
			counts[i], counted[q.dealID] = !counted[q.dealID], true
			result = max(result, q.result)
			deals[i], first[i], last[i] = q.dealID, q.want.first, q.want.last
			inputs[i], attested[i] = q.want.inputs, q.want.attested
		}
		return []any{deals, first, last, inputs, attested, SmallRead, result, counts}
	}, scanSnapshot)
	c.run = func(ctx context.Context, calls []snapshotOf, wait bool) ([]*Snapshot, error) {
		answers, err := read(ctx, calls, wait)
		if err == nil {
			shareCounts(calls, answers)
		}
		return answers, err
	}
	return c.start(s.slots)
}

const uncounted = -1 // Snapshot.Commits until shareCounts

// shareCounts completes snapshots. The statement counts the rows of a deal, of which there can be thousands, only
// for one of the queries of the deal.
func shareCounts(calls []snapshotOf, answers []*Snapshot) {
	counted := make(map[string]*Snapshot, len(calls))
	for i, s := range answers {
		if s != nil && s.Commits != uncounted {
			counted[calls[i].dealID] = s
		}
	}
	for i, s := range answers {
		if s != nil && s.Commits == uncounted {
			from := counted[calls[i].dealID]
			s.Commits, s.Reveals, s.LastReveal, s.Pending = from.Commits, from.Reveals, from.LastReveal, from.Pending
		}
	}
}

func scanSnapshot(row pgx.CollectableRow, n *int, calls []snapshotOf) (*Snapshot, error) {
	var parties int
	var committed, revealed []int
	var commitments [][]byte
	var attested []*string
	var sealTime *int64
	var inputBytes, commits, reveals, pending *int
	var lastReveal *int64
	s := &Snapshot{}
	err := row.Scan(n, &parties, &s.Phase, &s.CommitsClosedAt, &s.RevealsClosedAt, &s.ComputedAt, &s.Result, &s.resultBytes, &s.VoidFlakers, &s.CertID, &s.LeafIndex, &s.CertifiedSize,
		&commits, &reveals, &lastReveal, &s.NowMilli, &committed, &commitments, &revealed, &inputBytes, &s.Sealed, &attested, &sealTime, &pending, &s.Opened)
	if err != nil {
		return nil, err
	}
	if s.Commits = uncounted; commits != nil {
		s.Commits, s.Reveals, s.LastReveal, s.Pending = *commits, *reveals, *lastReveal, *pending
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
