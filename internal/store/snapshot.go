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

// Snapshot is what changes about a deal, read at one moment. Times are unix
// seconds of the database's clock.
type Snapshot struct {
	Phase           deal.State
	CommitsClosedAt *int64
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	VoidFlakers     []int
	CertID          *string
	Published       bool   // the certificate has its leaf
	LeafIndex       *int64 // that leaf; nil also where the caller has just published it
	Commits         int
	Reveals         int
	LastReveal      int64 // 0: nobody has revealed
	Now             int64
	NowMilli        int64 // the same in milliseconds

	Parts  []Part   // of the parties that were asked for, in order
	Sealed [][]byte // the encrypted inputs of those that have revealed, in party order, where asked for; nil entries were purged

	// AttestedBy is what the certificate says of who made each commitment, by party,
	// where asked for; nil: a token alone, or not committed.
	AttestedBy []*string
}

// Part is one party's part in a deal.
type Part struct {
	Commitment *string // `sha256:` and 64 hex digits; nil: not committed
	Revealed   bool
}

// Want is how much of a deal a snapshot holds beside its own row.
type Want struct {
	first, last int
	inputs      bool
	attested    bool
	bytes       int // of the answer, roughly and where it is much
}

// What may be wanted beside Only and Everyone. How large the sealed inputs are is
// not known before, so they are read alone.
var (
	Nobody     = Want{0, -1, false, false, 0}
	WithInputs = Want{0, math.MaxInt32, true, true, maxGroupSize} // and who made the commitments
)

// More reports whether more than the parts of the parties is wanted.
func (w Want) More() bool { return w.inputs || w.attested }

// Everyone wants the parts of all parties, which are that many.
func Everyone(parties int) Want { return Want{0, parties - 1, false, false, 128 * parties} }

// Attested wants the parts of all parties and who made their commitments.
func Attested(parties int) Want { return Want{0, parties - 1, false, true, 512 * parties} }

// Only wants one party's part.
func Only(party int) Want { return Want{party, party, false, false, 0} }

// Snapshot reads a deal as it stands, or ErrNotFound.
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
	c := &coalescer[snapshotOf, *Snapshot]{size: func(q snapshotOf) int { return q.want.bytes }}
	c.run = func(ctx context.Context, all []snapshotOf, _ bool) ([]*Snapshot, error) {
		calls, at := distinct(all)
		deals, inputs, attested := make([]string, len(calls)), make([]bool, len(calls)), make([]bool, len(calls))
		first, last := make([]int, len(calls)), make([]int, len(calls))
		for i, q := range calls {
			deals[i], first[i], last[i] = q.dealID, q.want.first, q.want.last
			inputs[i], attested[i] = q.want.inputs, q.want.attested
		}
		found := make([]*Snapshot, len(calls))
		rows, err := s.pool.Query(ctx, snapshotSQL, deals, first, last, inputs, attested)
		if err != nil {
			return nil, err
		}
		err = each(func(row pgx.CollectableRow) error {
			var n int
			one := &Snapshot{}
			if err := one.scan(row, &n, calls); err != nil {
				return err
			}
			found[n-1] = one
			return nil
		})(rows)
		answers := make([]*Snapshot, len(all))
		for i, n := range at {
			answers[i] = found[n]
		}
		return answers, err
	}
	return c.start(s.budget)
}

func (s *Snapshot) scan(row pgx.CollectableRow, n *int, calls []snapshotOf) error {
	var parties int
	var committed, revealed []int
	var commitments [][]byte
	var attested []*string
	err := row.Scan(n, &parties, &s.Phase, &s.CommitsClosedAt, &s.RevealsClosedAt, &s.ComputedAt, &s.Result, &s.VoidFlakers, &s.CertID, &s.LeafIndex,
		&s.Commits, &s.Reveals, &s.LastReveal, &s.NowMilli, &committed, &commitments, &revealed, &s.Sealed, &attested)
	if err != nil {
		return err
	}
	s.Now, s.Published = s.NowMilli/1000, s.LeafIndex != nil
	want := calls[*n-1].want
	s.Parts = make([]Part, max(0, min(want.last+1, parties)-want.first))
	if n := want.first + len(s.Parts); len(committed) > 0 && committed[len(committed)-1] >= n || len(revealed) > 0 && revealed[len(revealed)-1] >= n {
		return fmt.Errorf("store: a deal of %d parties has rows of others", parties)
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
	return nil
}

// CommitmentText is a commitment as the contract writes it (SPEC 2.6).
func CommitmentText(raw []byte) string { return "sha256:" + hex.EncodeToString(raw) }
