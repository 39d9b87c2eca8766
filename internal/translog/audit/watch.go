package audit

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// Watch reads the newest checkpoint and proves that the log extends the head `seen` (see Extends).
// A log may show different trees to different watchers, who detect this by comparing their heads.
func Watch(ctx context.Context, from *Source, policy *checkpoint.Policy, seen Head) (Head, error) {
	head, err := from.headAfter(ctx, policy, seen.Size)
	if err != nil {
		return head, err
	}
	return head, Extends(ctx, from, head, seen)
}

// Extends proves that the tree of `head` extends the tree of `older`. If the log forked or became
// shorter, the error is a Contradiction. If the checkpoints are of different logs, the error is
// not a Contradiction.
func Extends(ctx context.Context, from *Source, head, older Head) error {
	notes := [][]byte{older.Note, head.Note}
	switch {
	case older.Note != nil && older.Origin != head.Origin:
		return fmt.Errorf("the checkpoints are of different logs: %q now, %q before; use a checkpoint file or mirror folder of the log that you check", head.Origin, older.Origin)
	case older.Size > head.Size:
		return contradicts(checkpointPath, notes, "the log went back from %d to %d leaves", older.Size, head.Size)
	case older.Size == 0:
		return nil
	}
	root := tlog.Hash(head.Root)
	if older.Size < head.Size {
		t, err := openTree(ctx, from, head, nil, 1)
		if err == nil {
			root, err = t.rootAt(ctx, older.Size)
		}
		if err != nil {
			return t.verdict(err)
		}
	}
	if root != tlog.Hash(older.Root) {
		return contradicts(checkpointPath, notes, "the log is forked: its first %d leaves now have the root %v, but had the root %v before", older.Size, root, tlog.Hash(older.Root))
	}
	return nil
}

// rootAt returns the root that the tree had at a smaller size.
func (t *tree) rootAt(ctx context.Context, size int64) (tlog.Hash, error) {
	var levels [][]tlog.Hash
	for l := 0; size>>(checkpoint.TileHeight*l) > 0; l++ {
		last := tileAt(l, size>>(checkpoint.TileHeight*(l+1)), size)
		var nodes []tlog.Hash
		if last.W > 0 {
			c, err := t.tile(ctx, l, last.N)
			if err != nil {
				return tlog.Hash{}, err
			}
			nodes = c.hashes[:last.W]
		}
		levels = append(levels, nodes)
	}
	return rootOf(levels), nil
}

const (
	attempts   = 5
	retryAfter = time.Second
)

// headAfter retries if the checkpoint of a log at a URL has fewer than `size` leaves, because the
// answer may come from a cache or a replica that lags. In the end it returns even that checkpoint.
func (s *Source) headAfter(ctx context.Context, policy *checkpoint.Policy, size int64) (Head, error) {
	for attempt := 1; ; attempt++ {
		head, err := s.Head(ctx, policy)
		if err != nil || head.Size >= size || attempt == attempts || !s.remote {
			return head, err
		}
		if err := httpclient.Pause(ctx, retryAfter); err != nil {
			return head, err
		}
	}
}
