package translog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Return puts back leaves that the database lost, as a restore from a backup
// loses the newest ones, and returns how many. The leaves must continue the
// committed tree without a gap up to the head, whose signature the caller MUST
// have verified, and lead to its root: then the log is the signed one again, and
// the fork guard lets it go on. Leaves that the log has are left out. It returns
// ErrRefused, and changes nothing, where they do not.
func Return(ctx context.Context, pool *pgxpool.Pool, leaves []TaggedLeaf, head TreeHead) (returned int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var from state
		if err := tx.QueryRow(ctx, sqlLockHead).Scan(&from.size, &from.hash, &from.hashes); err != nil {
			return fromDatabase(err)
		}
		if err := from.check(); err != nil {
			return err
		}
		g, err := from.continued(leaves, head)
		if err != nil || len(g.entries) == 0 {
			return err
		}
		moved, err := appendTo(ctx, tx, g)
		if err == nil && !moved {
			err = fmt.Errorf("%w: the log has one of the entries at another leaf, or the tag of another entry", ErrRefused)
		}
		returned = len(g.entries)
		return err
	})
	if err != nil {
		return 0, err
	}
	return returned, nil
}

// continued is what the leaves above the tree add to it, where they lead to the
// head.
func (s state) continued(leaves []TaggedLeaf, head TreeHead) (*growth, error) {
	leaves = slices.DeleteFunc(slices.Clone(leaves), func(l TaggedLeaf) bool { return l.Index < s.size })
	slices.SortFunc(leaves, func(a, b TaggedLeaf) int { return cmp.Compare(a.Index, b.Index) })
	leaves = slices.Compact(leaves)
	var entries, tags [][]byte
	var tagged []int64
	for i := range leaves {
		if next := s.size + int64(i); leaves[i].Index != next {
			return nil, fmt.Errorf("%w: leaf %d comes next, and the next one that was given is leaf %d", ErrRefused, next, leaves[i].Index)
		}
		entries, tags, tagged = append(entries, leaves[i].Entry[:]), append(tags, leaves[i].Tag[:]), append(tagged, leaves[i].Index)
	}
	g, err := s.grow(entries)
	if err != nil {
		return nil, err
	}
	g.tags, g.tagged = tags, tagged
	if g.to.size != head.TreeSize {
		return nil, fmt.Errorf("%w: with these leaves the log has %d, and the tree head covers %d", ErrRefused, g.to.size, head.TreeSize)
	}
	if !g.to.same(head.root()) {
		return nil, fmt.Errorf("%w: with these leaves the log of %d leaves does not have the root of the tree head", ErrRefused, head.TreeSize)
	}
	return g, nil
}
