package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
)

var marksSQL = query("marks")

// Mark is what a call that waits for a change of a deal compares. It differs
// wherever two views of the deal do: commitments and reveals are only added.
type Mark struct {
	Phase     deal.State
	Acted     int  // how many have committed (COMMITTING) or revealed (REVEALING); else 0
	Drawing   bool // all have revealed, and the deal waits for its beacon round
	Published bool // the certificate has its leaf
}

// State is the state that a view shows.
func (m Mark) State() deal.State { return deal.Deal{Phase: m.Phase, Commits: m.Acted}.State() }

// Same reports whether nothing has changed between the two; with stateOnly, nothing
// but who has committed or revealed.
func (m Mark) Same(other Mark, stateOnly bool) bool {
	if stateOnly {
		return m.State() == other.State() && m.Drawing == other.Drawing && m.Published == other.Published
	}
	return m == other
}

// Mark is the mark of the deal as the snapshot has it.
func (s *Snapshot) Mark() Mark {
	m := Mark{Phase: s.Phase, Published: s.Published}
	switch s.Phase {
	case deal.Committing:
		m.Acted = s.Commits
	case deal.Revealing:
		m.Acted, m.Drawing = s.Reveals, s.RevealsClosedAt != nil
	}
	return m
}

// Marked is a deal with its mark. Due: a deadline has passed and nobody took the
// step that it brings.
type Marked struct {
	DealID string
	Mark
	Due bool
}

// Marks reads the marks of deals, of all in one statement. Unknown ones are left out.
func (s *Store) Marks(ctx context.Context, dealIDs []string) ([]Marked, error) {
	rows, err := s.pool.Query(ctx, marksSQL, dealIDs)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Marked, err error) {
		return m, row.Scan(&m.DealID, &m.Phase, &m.Acted, &m.Drawing, &m.Published, &m.Due)
	})
	return all, outage(err)
}
