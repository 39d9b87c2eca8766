package translog

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/fairpact/fairpact/internal/platform/batch"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

const (
	maxBatch      = 4096    // entries in one transaction
	maxQueue      = 1 << 16 // calls that wait in one group
	batchTimeout  = 10 * time.Second
	batchAttempts = 3
	batchBackoff  = 50 * time.Millisecond
)

type sequencer struct {
	batches      *batch.Group[candidate, sequenced]
	store        *store
	checks       *checks
	tree         *tree
	setLastBatch func(*batchDelta)

	// Only the running batch uses these two fields.
	known *state // what the last batch committed; nil before the first one and if the outcome is unknown
	alone bool   // no other replica appended between the last two batches
}

// Tag is a hash of a deal's id. The log accepts only one entry for each tag.
type Tag [32]byte

// candidate is an entry to append. A new entry gets a leaf only at an index below `ceiling`.
type candidate struct {
	entry   [32]byte
	ceiling int64
	tag     Tag
}

type sequenced struct {
	index int64 // the leaf index, or the constant `refused` or `late`
	taken bool  // the log has another entry with the same Tag; index is the leaf index of that entry
}

func ceiling(key keys.Key) int64 {
	if key.TreeSize == nil {
		return math.MaxInt64
	}
	return *key.TreeSize
}

func newSequencer(s *store, c *checks, t *tree, setLastBatch func(*batchDelta)) *sequencer {
	q := &sequencer{store: s, checks: c, tree: t, setLastBatch: setLastBatch}
	q.batches = newGroup(1, maxBatch, q.sequence)
	return q
}

// newGroup returns a group with at most `runs` concurrent runs of at most `most` queries.
func newGroup[Q, A any](runs, most int, run func(context.Context, []Q) ([]A, error)) *batch.Group[Q, A] {
	o := batch.Options[Q, A]{Slots: make(batch.Slots, runs), Run: run, Fits: batch.AtMost[Q](most), Queue: maxQueue, Convert: unavailable, Overlap: runs > 1}
	return batch.New(o)
}

func (s *sequencer) sequence(ctx context.Context, batch []candidate) ([]sequenced, error) {
	// The highest ceiling counts if the batch has an entry several times, signed by several keys.
	ceilings := make(map[[32]byte]int64, len(batch))
	for _, c := range batch {
		ceilings[c.entry] = max(ceilings[c.entry], c.ceiling)
	}
	entries := make([]candidate, len(batch))
	for i, c := range batch {
		entries[i] = candidate{c.entry, ceilings[c.entry], c.tag}
	}
	var results []sequenced
	var err error
	for attempt := range batchAttempts {
		if results, err = s.attempt(ctx, entries); err == nil || errors.Is(err, ErrInconsistent) {
			break
		}
		s.checks.logger.WarnContext(ctx, "attempt to sequence a batch failed", "entries", len(entries), "attempt", attempt+1, "err", err)
		if !pause(ctx, batchBackoff<<attempt) {
			break
		}
	}
	if err != nil {
		return nil, s.checks.recordFailure(ctx, err)
	}
	batchEntries.Observe(float64(len(entries)))
	crash.Point("log.sequenced")
	return results, nil
}

func (s *sequencer) attempt(ctx context.Context, entries []candidate) ([]sequenced, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if results := s.appendOptimistic(ctx, entries); results != nil {
		return results, nil
	}
	return s.lockAndAppend(ctx, entries)
}

// appendOptimistic returns nil if it appended nothing or the outcome is unknown.
func (s *sequencer) appendOptimistic(ctx context.Context, entries []candidate) []sequenced {
	if s.known == nil || !s.alone {
		return nil
	}
	results, g, err := s.known.admit(entries, make(map[[32]byte]int64, len(entries)+1), make(map[Tag]int64, len(entries)))
	// An entry that admit refuses, without a look-up in the tables, may be in the log already.
	if err != nil || slices.ContainsFunc(results, func(r sequenced) bool { return r.index < 0 }) {
		return nil
	}
	crash.Point("log.before-commit")
	appended, err := appendTo(ctx, s.store.pool, g)
	if err != nil {
		s.known = nil
		s.checks.logger.DebugContext(ctx, "append in one statement failed, retrying under the lock", "entries", len(entries), "err", err)
	}
	if err != nil || !appended {
		return nil
	}
	s.committed(ctx, g, true)
	return results
}

func (s *sequencer) lockAndAppend(ctx context.Context, entries []candidate) ([]sequenced, error) {
	results, g, err := s.store.commit(ctx, entries)
	if err != nil {
		s.known = nil
		s.setLastBatch(nil)
		return nil, err
	}
	first := s.known == nil
	s.alone = first || g.from.same(s.known.root)
	s.committed(ctx, g, s.alone && !first)
	return results, nil
}

// committed takes note of g. `continues`: g is known to extend the previous batch of this process.
func (s *sequencer) committed(ctx context.Context, g *batchDelta, continues bool) {
	s.known = &g.to
	sizeCommitted.Set(float64(g.to.size))
	if !s.tree.grow(g) && s.alone {
		if err := s.tree.follow(ctx, g.to.root); err != nil {
			s.checks.logger.DebugContext(ctx, "tiles not read into memory", "tree_size", g.to.size, "err", err)
		}
	}
	switch {
	case !continues:
		s.setLastBatch(nil)
	case len(g.entries) > 0:
		s.setLastBatch(g)
	}
}
