package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/deal"
)

var (
	dueSQL      = query("due")
	completeSQL = query("complete")
	loadSQL     = query("load")
)

// Due is a deal that deadline-worker must process now or soon (see Store.Due).
type Due struct {
	DealID string
	In     int64 // milliseconds until the deal's next step is due; 0 or less: due now
}

// Due lists the deals that deadline-worker must process, at most `limit` of each kind:
//   - deals whose deadline is at most `horizon` seconds away;
//   - random.v1 deals whose draw is due (deal.Deal.DrawAt);
//   - deals whose certificate is more than 3 seconds old and not in the log yet, without the deals
//     in `except`.
func (s *Store) Due(ctx context.Context, horizon int64, limit int, except []string) ([]Due, error) {
	return rows(ctx, s.pool, pgx.RowToStructByPos[Due], dueSQL, horizon, limit, deal.DrawDelay, append([]string{}, except...))
}

// ListComplete lists REVEALING deals in which every party has revealed, without the deals that wait
// for their draw. A process died before it ended the deal, or a revealed input cannot be decrypted
// and the deal waits for its deadline. ListComplete reads every REVEALING deal, so call it less
// often than Due.
func (s *Store) ListComplete(ctx context.Context, limit int) ([]string, error) {
	return rows(ctx, s.pool, pgx.RowTo[string], completeSQL, limit)
}

// Load counts active deals and pending certificates. An age is in seconds since the oldest of them was
// created, by the database's clock; 0: there is none.
type Load struct {
	Committing, Revealing       int64 // deals by phase; COMMITTING includes deals shown as OPEN
	CommittingAge, RevealingAge float64
	Pending                     int64 // certificates that are not in the log yet
	PendingAge                  float64
	Overdue                     float64 // seconds since the earliest passed deadline that is not processed yet; 0: none
	DrawOverdue                 float64 // seconds since the earliest pending draw became due; 0: none is due
}

// Load counts the active deals and pending certificates.
func (s *Store) Load(ctx context.Context) (l Load, err error) {
	err = s.pool.QueryRow(ctx, loadSQL, deal.DrawDelay).Scan(&l.Committing, &l.CommittingAge, &l.Revealing, &l.RevealingAge, &l.Pending, &l.PendingAge, &l.Overdue, &l.DrawOverdue)
	return l, translate(err)
}
