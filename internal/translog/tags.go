package translog

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TaggedLeaf is a leaf and the tag that it is to have.
type TaggedLeaf struct {
	Index int64
	Entry [32]byte
	Tag   Tag
}

// Untagged returns the indexes of the leaves without a tag, in order: those that a
// release without tags appended.
func Untagged(ctx context.Context, pool *pgxpool.Pool) ([]int64, error) {
	var indexes []int64
	err := patiently(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlUntagged)
		if err != nil {
			return err
		}
		indexes, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return indexes, fromDatabase(err)
}

// TagLeaves tags leaves, and returns the indexes of those that do not have their
// tag afterwards: the leaf has another entry, or the tag is that of another leaf.
// It may run beside any number of replicas: the table decides who has a tag.
func TagLeaves(ctx context.Context, pool *pgxpool.Pool, leaves []TaggedLeaf) (without []int64, err error) {
	indexes, entries, tags := make([]int64, len(leaves)), make([][]byte, len(leaves)), make([][]byte, len(leaves))
	for i := range leaves {
		indexes[i], entries[i], tags[i] = leaves[i].Index, leaves[i].Entry[:], leaves[i].Tag[:]
	}
	if _, err := pool.Exec(ctx, sqlTagLeaves, indexes, entries, tags); err != nil {
		return nil, fromDatabase(err)
	}
	rows, err := pool.Query(ctx, sqlNotTagged, indexes, entries, tags)
	if err != nil {
		return nil, fromDatabase(err)
	}
	without, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return without, fromDatabase(err)
}
