package translog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// readTiles reads the tiles as far as they are complete in a tree of the size,
// in one round trip. A missing row is ErrInconsistent. Nothing is verified.
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

// readEntries reads the entries of leaves [first, end).
func (s *store) readEntries(ctx context.Context, first, end uint64) ([][]byte, error) {
	rows, err := s.pool.Query(ctx, sqlLeavesBetween, int64(first), int64(end))
	if err != nil {
		return nil, fromDatabase(err)
	}
	entries, err := collect(rows, 0, first, end)
	return entries, fromDatabase(err)
}

// collect reads rows of an index and a value, which must be first, …, end-1.
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
