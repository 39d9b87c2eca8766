package translog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TaggedLeaf is a leaf and the tag that it should have.
type TaggedLeaf struct {
	Index int64
	Entry [32]byte
	Tag   Tag
}

// Untagged returns the indexes of the leaves without a Tag, in ascending order. An earlier
// release, which had no tags, appended these leaves.
func Untagged(ctx context.Context, pool *pgxpool.Pool) ([]int64, error) {
	var indexes []int64
	err := readSnapshot(ctx, pool, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, sqlUntagged)
		indexes, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return indexes, fromDatabase(err)
}

// TagLeaves stores the Tag of each leaf. It returns the indexes of the leaves that did not get
// their tag: the log does not have the given entry at that index, or another leaf has the tag.
// TagLeaves may run while replicas append, because the primary key of translog.tags allows
// each tag only once.
func TagLeaves(ctx context.Context, pool *pgxpool.Pool, leaves []TaggedLeaf) (untagged []int64, err error) {
	indexes, entries, tags := make([]int64, len(leaves)), make([][]byte, len(leaves)), make([][]byte, len(leaves))
	for i := range leaves {
		indexes[i], entries[i], tags[i] = leaves[i].Index, leaves[i].Entry[:], leaves[i].Tag[:]
	}
	if _, err := pool.Exec(ctx, sqlTagLeaves, indexes, entries, tags); err != nil {
		return nil, fromDatabase(err)
	}
	rows, _ := pool.Query(ctx, sqlNotTagged, indexes, entries, tags)
	untagged, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return untagged, fromDatabase(err)
}

// Return appends the newest leaves again if a restored backup lacks them. It returns the number
// of leaves that it appended. The caller MUST have verified the signature of head. The given
// leaves may include leaves that the log already has; Return ignores those. The other leaves
// must follow the committed tree without a gap, and must grow it to exactly the tree of head.
// Otherwise Return appends nothing and returns ErrRefused.
func Return(ctx context.Context, pool *pgxpool.Pool, leaves []TaggedLeaf, head TreeHead) (returned int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var committed state
		if err := tx.QueryRow(ctx, sqlLockHead).Scan(&committed.size, &committed.hash, &committed.hashes); err != nil {
			return fromDatabase(err)
		}
		if err := committed.check(); err != nil {
			return err
		}
		g, err := committed.growTo(head, leaves)
		if err != nil || len(g.entries) == 0 {
			return err
		}
		appended, err := appendTo(ctx, tx, g)
		if err == nil && !appended {
			err = fmt.Errorf("%w: a given leaf has an entry or a tag that another leaf of the log already has", ErrRefused)
		}
		returned = len(g.entries)
		return err
	})
	if err != nil {
		return 0, err
	}
	return returned, nil
}

// growTo returns the batch that extends the tree s to the tree of head. It ignores the given
// leaves that s already has. It returns ErrRefused if the remaining leaves have a gap or do not
// lead to head.
func (s state) growTo(head TreeHead, leaves []TaggedLeaf) (*batchDelta, error) {
	leaves = slices.DeleteFunc(slices.Clone(leaves), func(l TaggedLeaf) bool { return l.Index < s.size })
	slices.SortFunc(leaves, func(a, b TaggedLeaf) int { return cmp.Compare(a.Index, b.Index) })
	leaves = slices.Compact(leaves)
	var entries, tags [][]byte
	var tagged []int64
	for i := range leaves {
		if next := s.size + int64(i); leaves[i].Index != next {
			return nil, fmt.Errorf("%w: leaf %d is missing, and the next given leaf is %d: give every leaf that the log lacks", ErrRefused, next, leaves[i].Index)
		}
		entries, tags, tagged = append(entries, leaves[i].Entry[:]), append(tags, leaves[i].Tag[:]), append(tagged, leaves[i].Index)
	}
	g, err := s.grow(entries)
	if err != nil {
		return nil, err
	}
	g.tags, g.tagged = tags, tagged
	if g.to.size != head.TreeSize {
		return nil, fmt.Errorf("%w: with the given leaves the log would have %d leaves, but the tree head covers %d", ErrRefused, g.to.size, head.TreeSize)
	}
	if !g.to.same(treeOf(head)) {
		return nil, fmt.Errorf("%w: the given leaves do not lead to the root of the tree head of size %d: at least one leaf is wrong or of another log", ErrRefused, head.TreeSize)
	}
	return g, nil
}
