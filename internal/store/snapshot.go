package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
)

var snapshotSQL = query("snapshot")

// Snapshot is the changing part of a deal, read at one moment. Times are unix
// seconds of the database's clock.
type Snapshot struct {
	Phase           deal.State
	CommitsClosedAt *int64
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	VoidFlakers     []int
	CertID          *string
	Published       bool // the certificate has a leaf in the log
	// LeafIndex is the index of the certificate's leaf; nil: no leaf when the row was read. A
	// caller that publishes the certificate later sets Published, but leaves LeafIndex nil.
	LeafIndex  *int64
	Commits    int
	Reveals    int
	LastReveal int64 // time of the last reveal; 0: none yet
	Now        int64 // time of the read
	NowMilli   int64 // Now, in unix milliseconds

	Parts []Part // of the parties from Want.first to Want.last
	First int    // party index of Parts[0]
	// Sealed is set if Want asks for the inputs. It holds one encrypted input for each stored
	// reveal, in party order. An element is nil if the input is purged.
	Sealed [][]byte
	// AttestedBy is set if Want asks for it. For each element of Parts it holds the party's
	// attested_by in the certificate. An element is nil if the party has not committed, or if
	// no seat key signed the commitment.
	AttestedBy []*string
}

// Part says what one party of a deal has done.
type Part struct {
	Commitment *string // `sha256:` and 64 hex digits; nil: not committed
	Revealed   bool
}

// Want says what a snapshot reads in addition to the deal's row and counts.
type Want struct {
	first, last int  // party indexes of the first and the last Part to read
	inputs      bool // whether Snapshot.Sealed is wanted
	attested    bool
	bytes       int // rough size of the answer; 0: too small to count
}

var (
	// Nobody is the Want of a snapshot with no party: Snapshot.Parts is empty.
	Nobody = Want{last: -1}
	// WithInputs is the Want of a snapshot with all Parts, Sealed and AttestedBy. The size
	// of the inputs is unknown before the read. So `bytes` is the maximum for one SQL statement,
	// and a statement that serves several calls serves at most one with inputs.
	WithInputs = Want{last: math.MaxInt32, inputs: true, attested: true, bytes: maxGroupSize}
)

// Everyone returns the Want of a snapshot with the Part of every party; `parties` is their number.
func Everyone(parties int) Want { return Want{last: parties - 1, bytes: 128 * parties} }

// Attested returns the Want for Snapshot.AttestedBy and for the Snapshot.Parts of all parties.
func Attested(parties int) Want { return Want{last: parties - 1, attested: true, bytes: 512 * parties} }

// Only returns the Want of a snapshot with the Part of one party.
func Only(party int) Want { return Want{first: party, last: party} }

// More reports whether Sealed or AttestedBy is wanted.
func (w Want) More() bool { return w.inputs || w.attested }

// Snapshot returns the current state of a deal, or ErrNotFound.
func (s *Store) Snapshot(ctx context.Context, dealID string, want Want) (*Snapshot, error) {
	snapshot, err := s.snapshots.do(ctx, snapshotOf{dealID, want})
	if err == nil && snapshot == nil {
		return nil, ErrNotFound
	}
	return snapshot, err
}

type snapshotOf struct {
	dealID string
	want   Want
}

func (s *Store) newSnapshots() *coalescer[snapshotOf, *Snapshot] {
	c := &coalescer[snapshotOf, *Snapshot]{size: func(q snapshotOf) int { return q.want.bytes }, fills: true}
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
	want := calls[*n-1].want
	s.First = want.first
	s.Parts = make([]Part, max(0, min(want.last+1, parties)-want.first))
	if end := want.first + len(s.Parts); len(committed) > 0 && committed[len(committed)-1] >= end || len(revealed) > 0 && revealed[len(revealed)-1] >= end {
		return nil, fmt.Errorf("store: deal %s has %d parties, but the party index of a stored commitment or reveal is too high", calls[*n-1].dealID, parties)
	}
	for i, party := range committed {
		text := CommitmentText(commitments[i])
		s.Parts[party-want.first].Commitment = &text
	}
	if want.attested {
		s.AttestedBy = make([]*string, len(s.Parts))
		for i, party := range committed {
			s.AttestedBy[party-want.first] = attested[i]
		}
	}
	for _, party := range revealed {
		s.Parts[party-want.first].Revealed = true
	}
	return s, nil
}

// CommitmentText returns a commitment in the text form of SPEC 2.6.
func CommitmentText(raw []byte) string { return "sha256:" + hex.EncodeToString(raw) }
