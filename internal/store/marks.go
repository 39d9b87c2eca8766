package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
)

var marksSQL = query("marks")

// Mark is a summary of a deal. It changes whenever a view of the deal changes, except from
// COMPUTED to CERTIFIED. A call that waits for a change compares marks. A count of
// commitments or reveals shows every change, because no commitment or reveal is ever removed.
type Mark struct {
	Phase     deal.State
	Acted     int  // COMMITTING: number of commitments; REVEALING: number of reveals; else 0
	Drawing   bool // all parties have revealed, and the deal waits for its beacon round
	Published bool // the certificate has a leaf in the log
}

// State returns the state that a view shows, but COMPUTED if the view shows CERTIFIED.
func (m Mark) State() deal.State { return deal.Deal{Phase: m.Phase, Commits: m.Acted}.State() }

// Same reports whether two marks are equal. With stateOnly, it ignores a difference in Phase or
// Acted if State() is the same.
func (m Mark) Same(other Mark, stateOnly bool) bool {
	if stateOnly {
		return m.State() == other.State() && m.Drawing == other.Drawing && m.Published == other.Published
	}
	return m == other
}

// Mark returns the Mark of the deal at the time of the snapshot.
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

// Marked is the id of a deal with its Mark, the summary that shows whether the deal has changed.
type Marked struct {
	DealID string
	Mark
	Due bool // a deadline has passed, and the step that follows it has not been taken
}

// Marks returns the Mark of each deal. It leaves out unknown deals.
func (s *Store) Marks(ctx context.Context, dealIDs []string) ([]Marked, error) {
	return rows(ctx, s.pool, func(row pgx.CollectableRow) (m Marked, err error) {
		return m, row.Scan(&m.DealID, &m.Phase, &m.Acted, &m.Drawing, &m.Published, &m.Due)
	}, marksSQL, dealIDs)
}
