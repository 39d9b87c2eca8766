package translog

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/signing"
)

const (
	maxBatch      = 4096    // entries of one transaction
	maxQueue      = 1 << 16 // entries waiting for one
	batchTimeout  = 10 * time.Second
	batchAttempts = 3
	batchBackoff  = 50 * time.Millisecond
)

// sequencer gives entries their indexes, a batch at a time. What waits while one
// transaction runs goes into the next one together.
type sequencer struct {
	*group[candidate, place]
	store  *store
	checks *checks
	tree   *tree
	// hand passes a committed growth to the publisher; nil: what was handed before
	// may not be of the log's history any more.
	hand func(*growth)

	// known is the committed head as this process left it, nil where the outcome
	// is unknown; alone is false while other replicas move it. Both are used only
	// by the one batch that runs.
	known *state
	alone bool
}

// Tag is what one entry alone may be logged for, such as a hash of a deal's id.
// The zero Tag is none.
type Tag [32]byte

// candidate is an entry that is new only at an index below its ceiling.
type candidate struct {
	entry   [32]byte
	ceiling int64
	tag     Tag
}

// place is where the entry of a candidate is.
type place struct {
	index int64 // of its leaf, or refused, or late
	taken bool  // its tag is that of another entry, the leaf at index
}

// ceiling is the index from which on the key may hold no leaf.
func ceiling(key signing.Key) int64 {
	if key.TreeSize == nil {
		return math.MaxInt64
	}
	return *key.TreeSize
}

func newSequencer(s *store, c *checks, t *tree, hand func(*growth)) *sequencer {
	q := &sequencer{store: s, checks: c, tree: t, hand: hand}
	q.group = newGroup(1, maxBatch, maxQueue, q.sequence)
	return q
}

// sequence commits the batch and returns the place of each candidate.
// A failed attempt may have been committed: the repeat then finds the entries.
func (s *sequencer) sequence(ctx context.Context, batch []candidate) ([]place, error) {
	// An entry that comes with several signatures is new by the best of them.
	ceilings := make(map[[32]byte]int64, len(batch))
	for _, c := range batch {
		ceilings[c.entry] = max(ceilings[c.entry], c.ceiling)
	}
	entries := make([]candidate, len(batch))
	for i, c := range batch {
		entries[i] = candidate{c.entry, ceilings[c.entry], c.tag}
	}
	var places []place
	var err error
	for attempt := range batchAttempts {
		if places, err = s.attempt(ctx, entries); err == nil || errors.Is(err, ErrInconsistent) {
			break
		}
		s.checks.logger.WarnContext(ctx, "a batch was not sequenced", "entries", len(entries), "attempt", attempt+1, "err", err)
		if !pause(ctx, batchBackoff<<attempt) {
			break
		}
	}
	if err != nil {
		return nil, s.checks.note(ctx, err)
	}
	batchEntries.Observe(float64(len(entries)))
	crash.Point("log.sequenced")
	return places, nil
}

func (s *sequencer) attempt(ctx context.Context, entries []candidate) ([]place, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if places := s.appendOptimistic(ctx, entries); places != nil {
		return places, nil
	}
	return s.appendLocked(ctx, entries)
}

// appendOptimistic appends the batch to the head in memory in one statement. It
// returns nil where that did not happen or is not known: appendLocked decides.
func (s *sequencer) appendOptimistic(ctx context.Context, entries []candidate) []place {
	if s.known == nil || !s.alone {
		return nil
	}
	places, g, err := s.known.admit(entries, make(map[[32]byte]int64, len(entries)+1), make(map[Tag]int64, len(entries)))
	if err != nil || slices.ContainsFunc(places, func(p place) bool { return p.index < 0 }) { // unless the log has it
		return nil
	}
	crash.Point("log.before-commit")
	moved, err := appendTo(ctx, s.store.pool, g)
	if err != nil {
		s.known = nil
		s.checks.logger.DebugContext(ctx, "append in one statement failed, retrying under the lock", "entries", len(entries), "err", err)
	}
	if err != nil || !moved {
		return nil
	}
	s.committed(ctx, g, true)
	return places
}

// appendLocked locks the head, looks the entries up and appends what is new.
func (s *sequencer) appendLocked(ctx context.Context, entries []candidate) ([]place, error) {
	places, g, err := s.store.commit(ctx, entries)
	if err != nil {
		s.known = nil
		s.hand(nil)
		return nil, err
	}
	first := s.known == nil
	s.alone = first || g.from.same(s.known.root)
	s.committed(ctx, g, s.alone && !first)
	return places, nil
}

// committed keeps what the log holds now; continues says that the growth is of
// the head that this process left. Memory that is behind catches up here once,
// so that the next batches find it there; not while other replicas append, whose
// leaves are read when a proof needs them.
func (s *sequencer) committed(ctx context.Context, g *growth, continues bool) {
	s.known = &g.to
	sizeCommitted.Set(float64(g.to.size))
	if !s.tree.grow(g) && s.alone {
		if err := s.tree.follow(ctx, g.to.root); err != nil {
			s.checks.logger.DebugContext(ctx, "tiles are not in memory yet", "tree_size", g.to.size, "err", err)
		}
	}
	switch {
	case !continues:
		s.hand(nil)
	case len(g.entries) > 0:
		s.hand(g)
	}
}
