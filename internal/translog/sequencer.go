package translog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

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

// sequencer gives entries their indexes. What waits while one transaction runs
// goes into the next one together; nothing waits for a timer.
type sequencer struct {
	store  *store
	checks *checks
	tree   *tree
	// hand passes a committed growth to the publisher; nil: what was handed before
	// may not be of the log's history any more.
	hand func(*growth)

	// known is the committed head as this process left it, nil where the outcome
	// is unknown; alone is false while other replicas move it. Both are used only
	// by run.
	known *state
	alone bool

	mu sync.Mutex
	// queue is guarded by mu. A request is in the queue, or in the one batch that
	// runs, or answered; it is answered once at most.
	queue []*request
	// wake holds a token whenever the queue became non-empty after the loop last
	// looked.
	wake chan struct{}
}

type request struct {
	candidate
	ctx  context.Context // who waits for it
	done chan placed     // has room for the one answer, so that the loop never blocks
}

// candidate is an entry that is new only at an index below its ceiling.
type candidate struct {
	entry   [32]byte
	ceiling int64
}

// ceiling is the index from which on the key may hold no leaf.
func ceiling(key signing.Key) int64 {
	if key.TreeSize == nil {
		return math.MaxInt64
	}
	return *key.TreeSize
}

type placed struct {
	index int64
	err   error
}

func newSequencer(s *store, c *checks, t *tree, hand func(*growth)) *sequencer {
	return &sequencer{store: s, checks: c, tree: t, hand: hand, wake: make(chan struct{}, 1)}
}

// append returns the entry's index once its leaf is durable.
func (s *sequencer) append(ctx, closed context.Context, c candidate) (int64, error) {
	r := &request{candidate: c, ctx: ctx, done: make(chan placed, 1)}
	s.mu.Lock()
	full := len(s.queue) >= maxQueue
	if !full {
		s.queue = append(s.queue, r)
	}
	s.mu.Unlock()
	if full {
		return 0, fmt.Errorf("%w: %d appends are waiting", ErrUnavailable, maxQueue)
	}
	signal(s.wake)
	select {
	case p := <-r.done:
		return p.index, p.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: the entry was not sequenced in time: %w", ErrUnavailable, ctx.Err())
	case <-closed.Done():
		return 0, errClosed
	}
}

var errClosed = fmt.Errorf("%w: this replica is stopping", ErrUnavailable)

func (s *sequencer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for batch := s.take(); len(batch) > 0 && ctx.Err() == nil; batch = s.take() {
			s.sequence(ctx, batch)
		}
	}
}

// take drains the queue, up to the size of a batch, without those that nobody
// waits for any more.
func (s *sequencer) take() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []*request
	for len(s.queue) > 0 && len(batch) < maxBatch {
		if r := s.queue[0]; r.ctx.Err() == nil {
			batch = append(batch, r)
		}
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	return batch
}

// sequence commits the batch and answers it. A failed attempt may have been
// committed: the repeat then finds the entries.
func (s *sequencer) sequence(ctx context.Context, batch []*request) {
	// An entry that comes with several signatures is new by the best of them.
	ceilings := make(map[[32]byte]int64, len(batch))
	var entries []candidate
	for _, r := range batch {
		ceilings[r.entry] = max(ceilings[r.entry], r.ceiling)
	}
	for _, r := range batch {
		entries = append(entries, candidate{r.entry, ceilings[r.entry]})
	}
	var places map[[32]byte]int64
	var err error
	first := trace.ContextWithSpan(ctx, trace.SpanFromContext(batch[0].ctx)) // one trace shows the batch
	for attempt := range batchAttempts {
		if places, err = s.attempt(first, entries); err == nil || errors.Is(err, ErrInconsistent) {
			break
		}
		s.checks.logger.WarnContext(first, "a batch was not sequenced", "entries", len(entries), "attempt", attempt+1, "err", err)
		if !pause(ctx, batchBackoff<<attempt) {
			break
		}
	}
	if err == nil {
		batchEntries.Observe(float64(len(entries)))
		crash.Point("log.sequenced")
	}
	_ = s.checks.note(first, err)
	for _, r := range batch {
		switch index := places[r.entry]; {
		case err != nil:
			r.done <- placed{err: err}
		case index == refused:
			r.done <- placed{err: fmt.Errorf("%w: it is the digest of a head of this log", ErrRefused)}
		case index == late:
			r.done <- placed{err: fmt.Errorf("%w: it is new, and its signature is by a retired key that holds no leaf from index %d on; sign it anew with the current key", ErrRefused, r.ceiling)}
		default:
			r.done <- placed{index: index}
		}
	}
}

func (s *sequencer) attempt(ctx context.Context, entries []candidate) (map[[32]byte]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if places := s.fast(ctx, entries); places != nil {
		return places, nil
	}
	return s.careful(ctx, entries)
}

// fast appends the batch to the head in memory in one statement. It returns nil
// where that did not happen or is not known: the careful way decides.
func (s *sequencer) fast(ctx context.Context, entries []candidate) map[[32]byte]int64 {
	if s.known == nil || !s.alone {
		return nil
	}
	places := make(map[[32]byte]int64, len(entries)+1)
	added := place(*s.known, entries, places)
	for i := range entries {
		if places[entries[i].entry] < 0 { // unless the log has it
			return nil
		}
	}
	g, err := s.known.grow(added)
	if err != nil {
		return nil
	}
	moved, err := s.store.append(ctx, g)
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

// careful locks the head, looks the entries up and writes what is new.
func (s *sequencer) careful(ctx context.Context, entries []candidate) (map[[32]byte]int64, error) {
	done, err := s.store.commit(ctx, entries)
	if err != nil {
		s.known = nil
		s.hand(nil)
		return nil, err
	}
	first, met := s.known == nil, done.growth.from
	s.alone = first || met.same(s.known.root)
	s.committed(ctx, done.growth, s.alone && !first)
	return done.places, nil
}

// committed keeps what the log holds now; continues says that the growth is of
// the head that this process left. Memory that is behind catches up here once,
// so that the next batches find it there; not while other replicas append, whose
// leaves are read when a proof needs them.
func (s *sequencer) committed(ctx context.Context, g *growth, continues bool) {
	s.known = &g.to
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

// signal puts a token into a channel of capacity one, where there is none yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
