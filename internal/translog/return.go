package translog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TaggedLeaf is a leaf of the log, with its tag.
type TaggedLeaf struct {
	Index int64
	Entry [32]byte
	Tag   Tag
}

// Has reports whether the log has the leaf.
func Has(ctx context.Context, pool *pgxpool.Pool, leaf TaggedLeaf) (found bool, err error) {
	err = pool.QueryRow(ctx, sqlHasLeaf, leaf.Index, leaf.Entry[:], leaf.Tag[:]).Scan(&found)
	return found, fromDatabase(err)
}

// Return appends the newest leaves again if a restored backup lacks them, and returns their
// number. The caller MUST have verified the signature of head. Return ignores leaves that the log
// already has. The others must follow the committed tree without a gap, and grow it to exactly
// the tree of head. Otherwise Return appends nothing and returns ErrRefused.
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

func (s state) growTo(head TreeHead, leaves []TaggedLeaf) (*batchDelta, error) {
	leaves = slices.DeleteFunc(slices.Clone(leaves), func(l TaggedLeaf) bool { return l.Index < s.size })
	slices.SortFunc(leaves, func(a, b TaggedLeaf) int { return cmp.Compare(a.Index, b.Index) })
	leaves = slices.Compact(leaves)
	var entries, tags [][]byte
	for i := range leaves {
		if next := s.size + int64(i); leaves[i].Index != next {
			return nil, fmt.Errorf("%w: leaf %d is missing, and the next given leaf is %d: give every leaf that the log lacks", ErrRefused, next, leaves[i].Index)
		}
		entries, tags = append(entries, leaves[i].Entry[:]), append(tags, leaves[i].Tag[:])
	}
	g, err := s.grow(entries)
	if err != nil {
		return nil, err
	}
	g.tags = tags
	if g.to.size != head.TreeSize {
		return nil, fmt.Errorf("%w: with the given leaves the log would have %d leaves, but the tree head covers %d", ErrRefused, g.to.size, head.TreeSize)
	}
	if !g.to.same(treeOf(head)) {
		return nil, fmt.Errorf("%w: the given leaves do not lead to the root of the tree head of size %d: at least one leaf is wrong or of another log", ErrRefused, head.TreeSize)
	}
	return g, nil
}
