package logaudit

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

// Watch reads the log's newest checkpoint and proves from tiles that its tree
// extends the one that was seen before. The error is a Contradiction, with both
// checkpoints in it, where it does not: a fork, or a log that became shorter. A
// log that shows its watchers different trees is found out by any two of them who
// exchange what they have seen.
func Watch(ctx context.Context, from *Source, policy *checkpoint.Policy, seen Head) (Head, error) {
	head, err := from.headAfter(ctx, policy, seen.Size)
	if err != nil {
		return head, err
	}
	return head, Extends(ctx, from, head, seen)
}

// Extends proves that the tree of head extends that of older, as Watch does.
// Checkpoints of two logs cannot be compared, and are no Contradiction.
func Extends(ctx context.Context, from *Source, head, older Head) error {
	notes := [][]byte{older.Note, head.Note}
	switch {
	case older.Note != nil && older.Origin != head.Origin:
		return fmt.Errorf("the checkpoints are of two logs: %q, and %q before", head.Origin, older.Origin)
	case older.Size > head.Size:
		return contradicts(checkpointPath, notes, "the log went back from %d to %d leaves", older.Size, head.Size)
	case older.Size == 0:
		return nil
	}
	root := tlog.Hash(head.Root)
	if older.Size < head.Size {
		var err error
		if root, err = tlog.TreeHash(older.Size, newTiles(ctx, from, head)); err != nil {
			return err
		}
	}
	if root != tlog.Hash(older.Root) {
		return contradicts(checkpointPath, notes, "the log is forked: its first %d leaves have the root %v, and had %v", older.Size, root, tlog.Hash(older.Root))
	}
	return nil
}

const (
	looks     = 5 // for a checkpoint that is not older than the last one
	lookAgain = time.Second
)

// headAfter reads the checkpoint. One that is smaller than the last one may come
// from a cache or a replica that is a moment behind, so that it is asked for again.
func (s *Source) headAfter(ctx context.Context, policy *checkpoint.Policy, size int64) (Head, error) {
	for look := 1; ; look++ {
		head, err := s.Head(ctx, policy)
		if err != nil || head.Size >= size || look == looks || !s.remote {
			return head, err
		}
		select {
		case <-ctx.Done():
			return head, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}
