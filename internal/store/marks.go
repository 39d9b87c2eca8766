package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
)

var marksSQL = query("marks")

// Progress is a summary of a deal. It changes whenever a view of the deal changes, except from
// COMPUTED to CERTIFIED. A call that waits for a change compares marks. A count of
// commitments or reveals shows every change, because no commitment or reveal is ever removed.
type Progress struct {
	Phase     deal.State
	Acted     int  // COMMITTING: number of commitments; REVEALING: number of reveals; else 0
	Drawing   bool // all parties have revealed, and the deal waits for its beacon round
	Published bool // the certificate has a leaf in the log
}

// State returns the state that a view shows, but COMPUTED if the view shows CERTIFIED.
func (m Progress) State() deal.State { return deal.Deal{Phase: m.Phase, Commits: m.Acted}.State() }

// Same reports whether two marks are equal. With stateOnly, it ignores a difference in Phase or
// Acted if State() is the same.
func (m Progress) Same(other Progress, stateOnly bool) bool {
	if stateOnly {
		return m.State() == other.State() && m.Drawing == other.Drawing && m.Published == other.Published
	}
	return m == other
}

// Progress returns the Progress of the deal at the time of the snapshot.
func (s *Snapshot) Progress() Progress {
	m := Progress{Phase: s.Phase, Published: s.Published}
	switch s.Phase {
	case deal.Committing:
		m.Acted = s.Commits
	case deal.Revealing:
		m.Acted, m.Drawing = s.Reveals, s.RevealsClosedAt != nil
	}
	return m
}

// DealProgress is the id of a deal with its Progress, the summary that shows whether the deal has changed.
type DealProgress struct {
	DealID string
	Progress
	Due bool // a deadline has passed, and the step that follows it has not been taken
}

// Progress returns the Progress of each deal. It leaves out unknown deals.
func (s *Store) Progress(ctx context.Context, dealIDs []string) ([]DealProgress, error) {
	return rows(ctx, s.pool, func(row pgx.CollectableRow) (m DealProgress, err error) {
		return m, row.Scan(&m.DealID, &m.Phase, &m.Acted, &m.Drawing, &m.Published, &m.Due)
	}, marksSQL, dealIDs)
}
