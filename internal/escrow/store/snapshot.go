package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/deal"
)

var snapshotSQL = query("snapshot")

// Snapshot is the changing part of a deal, read at one moment. Times are unix
// seconds of the database's clock.
type Snapshot struct {
	deal.Snapshot
	CommitsClosedAt *int64
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	CertID          *string
	Published       bool   // the certificate has a leaf in the log
	LeafIndex       *int64 // nil: no leaf when the row was read; Published may become true later
	Now             int64  // time of the read
	NowMilli        int64  // Now, in unix milliseconds

	Parts []PartyStatus // one for each party from Selection.first to Selection.last
	First int           // party index of Parts[0]
	// Sealed (only with Selection.inputs) holds one encrypted input for each stored reveal, in party
	// order; nil: purged.
	Sealed [][]byte
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

var (
	// NoParties selects no party: Snapshot.Parts is empty.
	NoParties = Selection{last: -1}
	// WithInputs selects all parties, Sealed and AttestedBy. The size of the inputs is unknown before
	// the read, so one statement serves at most one call with WithInputs.
	WithInputs = Selection{last: math.MaxInt32, inputs: true, attested: true, bytes: maxGroupSize}
)

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

// Snapshot returns the current state of a deal, or ErrNotFound.
func (s *Store) Snapshot(ctx context.Context, dealID string, selection Selection) (*Snapshot, error) {
	snapshot, err := s.snapshots.do(ctx, snapshotOf{dealID, selection})
	if err == nil && snapshot == nil {
		return nil, ErrNotFound
	}
	return snapshot, err
}

type snapshotOf struct {
	dealID string
	want   Selection
}

func (s *Store) newSnapshots() *coalescer[snapshotOf, *Snapshot] {
	c := &coalescer[snapshotOf, *Snapshot]{size: func(q snapshotOf) int { return q.want.bytes }, waitsForPrevious: true}
	c.run = reads(s, snapshotSQL, func(calls []snapshotOf) []any {
		deals, inputs, attested := make([]string, len(calls)), make([]bool, len(calls)), make([]bool, len(calls))
		first, last := make([]int, len(calls)), make([]int, len(calls))
		for i, q := range calls {
			deals[i], first[i], last[i] = q.dealID, q.want.first, q.want.last
			inputs[i], attested[i] = q.want.inputs, q.want.attested
		}
		return []any{deals, first, last, inputs, attested}
	}, scanSnapshot)
	return c.start(s.budget)
}

func scanSnapshot(row pgx.CollectableRow, n *int, calls []snapshotOf) (*Snapshot, error) {
	var parties int
	var committed, revealed []int
	var commitments [][]byte
	var attested []*string
	s := &Snapshot{}
	err := row.Scan(n, &parties, &s.Phase, &s.CommitsClosedAt, &s.RevealsClosedAt, &s.ComputedAt, &s.Result, &s.VoidFlakers, &s.CertID, &s.LeafIndex,
		&s.Commits, &s.Reveals, &s.LastReveal, &s.NowMilli, &committed, &commitments, &revealed, &s.Sealed, &attested)
	if err != nil {
		return nil, err
	}
	s.Now, s.Published = s.NowMilli/1000, s.LeafIndex != nil
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
