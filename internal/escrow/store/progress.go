package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/deal"
)

var progressSQL = query("progress")

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
	}, progressSQL, dealIDs)
}
