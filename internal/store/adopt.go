package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

var (
	adoptSQL     = query("adopt")
	publishedSQL = query("published")
)

// Adopt puts the end of a deal and its published certificate back, whatever
// stands in their place. It is false where the database has no such deal.
func (s *Store) Adopt(ctx context.Context, e *Ending, commitsClosedAt *int64, p Publication) (bool, error) {
	return s.decide(ctx, e.DealID, adoptSQL, e.DealID, e.CertID, e.Payload, e.MAC, p.Signature, p.LeafIndex,
		e.To, commitsClosedAt, e.RevealsClosedAt, e.ComputedAt, e.Result, e.VoidFlakers)
}

// Logged is a published certificate: its signing bytes and its leaf.
type Logged struct {
	Payload   []byte
	LeafIndex int64
}

// Published reads the certificates of some of the leaves, those that there are.
func (s *Store) Published(ctx context.Context, leaves []int64) ([]Logged, error) {
	rows, err := s.pool.Query(ctx, publishedSQL, leaves)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Logged])
	return all, outage(err)
}
