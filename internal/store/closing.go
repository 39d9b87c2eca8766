package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var signedFromSQL = query("signed_from")

// SignedFrom calls each with every signed certificate whose leaf is at the index
// or above, or that has no leaf yet.
func (s *Store) SignedFrom(ctx context.Context, leafIndex int64, each func(Certificate)) error {
	rows, err := s.pool.Query(ctx, signedFromSQL, leafIndex)
	if err != nil {
		return outage(err)
	}
	var c Certificate
	_, err = pgx.ForEachRow(rows, []any{&c.CertID, &c.Payload, &c.Signature, &c.LeafIndex}, func() error {
		each(c)
		return nil
	})
	return outage(err)
}

var applicationsSQL = query("applications")

// Applications returns how the clients of a database server name themselves.
func Applications(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, applicationsSQL)
	if err != nil {
		return nil, outage(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, outage(err)
}
