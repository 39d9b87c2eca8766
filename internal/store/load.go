package store

import "context"

var loadSQL = query("load")

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
