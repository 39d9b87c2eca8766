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
	maxBatch      = 4096    // maximum number of entries in one transaction
	maxQueue      = 1 << 16 // maximum number of calls that wait in one group
	batchTimeout  = 10 * time.Second
	batchAttempts = 3
	batchBackoff  = 50 * time.Millisecond
)

// sequencer assigns leaf indexes to entries, a batch at a time. Entries that arrive while
// one batch runs form the next batch.
type sequencer struct {
	batches      *batch.Group[candidate, sequenced]
	store        *store
	checks       *checks
	tree         *tree
	setLastBatch func(*batchDelta)

	// known is the tree that this process's last transaction (batch) of appends committed; nil
	// before the first batch and after a batch with an unknown outcome. alone is false if another
	// replica appended between the last two batches. Only the running batch uses known and alone.
	known *state
	alone bool
}

// Tag is a hash of a deal's id. The log accepts only one entry for each tag.
type Tag [32]byte

// candidate is an entry that a caller wants to append. If the log does not have the entry yet,
// the entry gets a leaf only at an index below `ceiling` (see the function ceiling).
type candidate struct {
	entry   [32]byte
	ceiling int64
	tag     Tag
}

// sequenced is the outcome of appending one candidate.
type sequenced struct {
	index int64 // the leaf index, or the constant `refused` or `late`
	taken bool  // the log has another entry with the same Tag; index is the leaf index of that entry
}

// ceiling returns a limit for the leaf indexes of entries that the key signed: every index must
// be smaller. It is Key.TreeSize for a closed key, and MaxInt64 for any other key.
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
	o := batch.Options[Q, A]{Slots: make(batch.Slots, runs), Run: run, Fits: batch.AtMost[Q](most), Queue: maxQueue, Convert: unavailable}
	if runs > 1 {
		o.Overlap = func([]Q) time.Duration { return 0 }
	}
	return batch.New(o)
}

// sequence commits the batch and returns the result of each candidate. A failed attempt may
// have committed the batch. The next attempt then finds the entries in the log.
func (s *sequencer) sequence(ctx context.Context, batch []candidate) ([]sequenced, error) {
	// The batch may have an entry several times, signed by keys with different ceilings. The
	// highest ceiling counts.
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

// appendOptimistic appends the batch in one statement if the committed head is the one in
// memory. It returns nil if it appended nothing or the outcome is unknown. The caller then
// calls lockAndAppend.
func (s *sequencer) appendOptimistic(ctx context.Context, entries []candidate) []sequenced {
	if s.known == nil || !s.alone {
		return nil
	}
	results, g, err := s.known.admit(entries, make(map[[32]byte]int64, len(entries)+1), make(map[Tag]int64, len(entries)))
	// admit got empty maps, so an entry that admit refuses (index below 0) may already be in the
	// log. lockAndAppend looks up the entry in the database.
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

// committed updates s.known and s.tree after the commit of g, and informs the publisher. `continues` is true if g is known to extend the head that the previous batch
// of this process committed. If s.tree lacks tiles and no other replica appends (s.alone),
// committed reads the tiles now. Otherwise the tiles are read when a proof needs them.
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
