package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

var (
	dueSQL      = query("due")
	completeSQL = query("complete")
	loadSQL     = query("load")
	sweepSQL    = query("sweep")
)

// Due is a deal that wants attention In milliseconds from now; 0 or less: at once.
type Due struct {
	DealID string
	In     int64
}

// Due lists the deals whose deadline is at most horizon seconds away and those
// whose certificate is pending; at most limit of each kind. Complete deals of
// random.v1 whose round came out or whose last reveal came less than drawDelay
// seconds ago are left to their parties, and so are the pending certificates of
// the deals in except.
func (s *Store) Due(ctx context.Context, horizon int64, limit int, drawDelay int64, except []string) ([]Due, error) {
	rows, err := s.pool.Query(ctx, dueSQL, horizon, limit, drawDelay, append([]string{}, except...))
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Due])
	return all, outage(err)
}

// Complete lists deals in which nobody is missing and that did not move on. It
// looks at every active deal: call it more rarely than Due.
func (s *Store) Complete(ctx context.Context, limit int) ([]string, error) {
	rows, err := s.pool.Query(ctx, completeSQL, limit)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return all, outage(err)
}

// Load is what runs and what waits, by the database's clock. Ages are seconds
// since the oldest was created; 0: there is none.
type Load struct {
	Committing, Revealing       int64 // deals; COMMITTING holds those that show OPEN
	CommittingAge, RevealingAge float64
	Pending                     int64 // certificates
	PendingAge                  float64
	Overdue                     float64 // seconds since the oldest deadline that has passed and was not fired
	DrawOverdue                 float64 // seconds since the oldest draw that is due and not made
}

// Load reads it. drawDelay is as in Due.
func (s *Store) Load(ctx context.Context, drawDelay int64) (l Load, err error) {
	err = s.pool.QueryRow(ctx, loadSQL, drawDelay).Scan(&l.Committing, &l.CommittingAge, &l.Revealing, &l.RevealingAge, &l.Pending, &l.PendingAge, &l.Overdue, &l.DrawOverdue)
	return l, outage(err)
}

// Sweep deletes all idempotency records whose time is over.
func (s *Store) Sweep(ctx context.Context) (deleted int64, err error) {
	for {
		tag, err := s.pool.Exec(ctx, sweepSQL)
		deleted += tag.RowsAffected()
		if err != nil || tag.RowsAffected() == 0 {
			return deleted, outage(err)
		}
	}
}
