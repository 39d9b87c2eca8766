package translog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type store struct{ pool *pgxpool.Pool }

// heads makes one round trip. newest is nil if no head is published.
func (s *store) heads(ctx context.Context) (committed root, newest *TreeHead, err error) {
	batch := &pgx.Batch{}
	// Otherwise the log could sign a head whose leaves are lost in a failover to the standby. The
	// fork guard's record of that head would then block new heads for ever.
	batch.Queue(sqlReplicated)
	// The published head is read before the committed head, so the committed head is at least as new.
	batch.Queue(sqlNewestHead).Query(func(rows pgx.Rows) error {
		heads, err := pgx.CollectRows(rows, scanHead)
		if len(heads) > 0 {
			newest = &heads[0]
		}
		return err
	})
	batch.Queue(sqlCommittedHead).QueryRow(func(row pgx.Row) error {
		return row.Scan(&committed.size, &committed.hash, nil)
	})
	err = s.pool.SendBatch(ctx, batch).Close()
	return committed, newest, fromDatabase(err)
}

func scanHead(row pgx.CollectableRow) (TreeHead, error) {
	var r root
	var signature string
	err := row.Scan(&r.size, &r.hash, &signature)
	return r.head(signature), err
}

// insertHead returns the stored head of the size. The error wraps pgx.ErrNoRows if there is none,
// because the database lacks the entry `last` (sqlInsertHead).
func (s *store) insertHead(ctx context.Context, head TreeHead, last []byte) (TreeHead, error) {
	r := treeOf(head)
	digest := head.Digest()
	tag, err := s.pool.Exec(ctx, sqlInsertHead, r.size, r.hash, digest[:], head.Signature, last)
	if err != nil || tag.RowsAffected() == 1 {
		return head, fromDatabase(err)
	}
	rows, _ := s.pool.Query(ctx, sqlHeadAt, head.TreeSize)
	stored, err := pgx.CollectExactlyOneRow(rows, scanHead)
	return stored, fromDatabase(err)
}

// readTiles reads tiles in one round trip, without the nodes that are not complete in a tree of
// `size` leaves. It returns ErrInconsistent if a row is missing. It does not verify hashes.
func (s *store) readTiles(ctx context.Context, size uint64, ids []tileID) ([]*tile, error) {
	tiles := make([]*tile, len(ids))
	batch := &pgx.Batch{}
	for i, id := range ids {
		first, end := id.span(size)
		var queued *pgx.QueuedQuery
		if id.level == 0 {
			queued = batch.Queue(sqlLeavesBetween, int64(first), int64(end))
		} else {
			queued = batch.Queue(sqlNodesBetween, int64(first), int64(end), int16(id.level))
		}
		queued.Query(func(rows pgx.Rows) error {
			hashes, err := collect(rows, id.level, first, end)
			if id.level == 0 {
				for n, entry := range hashes {
					hashes[n] = hasher.HashLeaf(entry)
				}
			}
			tiles[i] = newTile(id, hashes)
			return err
		})
	}
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fromDatabase(err)
	}
	return tiles, nil
}

func (s *store) readEntries(ctx context.Context, first, end uint64) ([][]byte, error) {
	rows, _ := s.pool.Query(ctx, sqlLeavesBetween, int64(first), int64(end)) // collect returns the error of Query
	entries, err := collect(rows, 0, first, end)
	return entries, fromDatabase(err)
}

// collect returns the values of rows whose indexes must be first, …, end-1.
func collect(rows pgx.Rows, level uint, first, end uint64) ([][]byte, error) {
	var index int64
	var value []byte
	values := make([][]byte, 0, end-first)
	next := first
	_, err := pgx.ForEachRow(rows, []any{&index, &value}, func() error {
		if uint64(index) != next {
			return missing(level, next)
		}
		values = append(values, slices.Clone(value))
		next++
		return nil
	})
	if err == nil && next != end {
		err = missing(level, next)
	}
	return values, err
}

func missing(level uint, index uint64) error {
	return fmt.Errorf("%w: the row of node %d at level %d is missing", ErrInconsistent, index, level)
}
