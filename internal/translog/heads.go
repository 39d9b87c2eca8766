package translog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// heads reads the committed head and the newest published one, nil where there
// is none, in one round trip.
func (s *store) heads(ctx context.Context) (committed root, newest *TreeHead, err error) {
	batch := &pgx.Batch{}
	// The published head is read first: the committed one, read later, can then
	// only be as new or newer.
	batch.Queue(sqlNewestHead).Query(oneHead(&newest))
	batch.Queue(sqlCommittedHead).QueryRow(func(row pgx.Row) error {
		return row.Scan(&committed.size, &committed.hash)
	})
	err = s.pool.SendBatch(ctx, batch).Close()
	return committed, newest, fromDatabase(err)
}

// oneHead reads the one row of a query for a head, if any.
func oneHead(to **TreeHead) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		head, err := pgx.CollectExactlyOneRow(rows, scanHead)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		*to = &head
		return err
	}
}

func scanHead(row pgx.CollectableRow) (TreeHead, error) {
	var r root
	var signature string
	err := row.Scan(&r.size, &r.hash, &signature)
	return r.head(signature), err
}

// insertHead stores the head unless its size has one, and returns the stored one.
// last is the last entry under the head, nil where it is not known: a database
// that does not hold it there gets no head, and the error is pgx.ErrNoRows.
func (s *store) insertHead(ctx context.Context, head TreeHead, last []byte) (TreeHead, error) {
	r, err := head.root()
	if err != nil {
		return TreeHead{}, err
	}
	digest := head.Digest()
	tag, err := s.pool.Exec(ctx, sqlInsertHead, r.size, r.hash, digest[:], head.Signature, last)
	if err != nil || tag.RowsAffected() == 1 {
		return head, fromDatabase(err)
	}
	rows, err := s.pool.Query(ctx, sqlHeadAt, head.TreeSize)
	if err != nil {
		return TreeHead{}, fromDatabase(err)
	}
	stored, err := pgx.CollectExactlyOneRow(rows, scanHead)
	return stored, fromDatabase(err)
}
