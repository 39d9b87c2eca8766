package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/crash"
)

const (
	publishTimeout = 30 * time.Second
	publishBackoff = 100 * time.Millisecond
	maxBackoff     = 2 * time.Second
	// lostRaces is how many rounds in a row may lose to other replicas before that
	// is a failure: one more means that somebody else keeps writing the guard.
	lostRaces = 10
)

// publisher signs the committed head and stores the signature, whenever somebody
// waits for it. One head covers everything that was committed before it was
// read.
type publisher struct {
	store  *store
	checks *checks
	signer Signer
	guard  Guard  // nil where the deployment has none
	adopt  *int64 // the published size at which an empty guard takes the database's word
	// passed tells that the guard agreed with the database once. Of run alone.
	passed bool

	mu sync.Mutex
	// All guarded by mu. size is the newest published size this replica has seen
	// and never falls, wanted the size that covers all who ever waited; a waiter is
	// answered once, when it is taken out.
	size    int64
	wanted  int64
	waiting map[*waiter]struct{}
	lastErr error // of the last round, nil where it succeeded
	// kick holds a token whenever a waiter came after the last round began.
	kick chan struct{}
}

type waiter struct {
	index int64
	span  trace.Span
	done  chan published // holds one answer, so that the loop never blocks
}

type published struct {
	size int64
	err  error
}

func newPublisher(s *store, c *checks, signer Signer) *publisher {
	return &publisher{store: s, checks: c, signer: signer, waiting: make(map[*waiter]struct{}), kick: make(chan struct{}, 1)}
}

// wait returns the size of a published head that covers the leaf. A round that
// ends after the call began says so, never memory alone: the database may have
// been swapped for an older one, which gave the index to another leaf.
//
// Nobody waits for a key that does not sign: who comes after a round that found
// it so is told at once, until a round succeeds.
func (p *publisher) wait(ctx, closed context.Context, index int64) (int64, error) {
	w := &waiter{index: index, span: trace.SpanFromContext(ctx), done: make(chan published, 1)}
	p.mu.Lock()
	p.wanted = max(p.wanted, index+1)
	away := unsigned(p.lastErr) && index >= p.size
	why := p.lastErr
	if !away {
		p.waiting[w] = struct{}{}
	}
	p.mu.Unlock()
	signal(p.kick)
	if away {
		return 0, uncovered(index, why)
	}
	select {
	case done := <-w.done:
		return done.size, done.err
	case <-ctx.Done():
		return 0, p.leave(w, ctx.Err())
	case <-closed.Done():
		return 0, p.leave(w, errClosed)
	}
}

func (p *publisher) leave(w *waiter, why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, w)
	if p.lastErr != nil {
		why = fmt.Errorf("%w (the last attempt: %w)", why, p.lastErr)
	}
	return uncovered(w.index, why)
}

// errUnsigned marks a round whose signer gave no signature: its key is out of
// reach, and the signer has tried again and again or knows that it is down; or
// it is disabled, or may not be used. Waiting longer does not mend either.
var errUnsigned = errors.New("the signer gives no signature")

func unsigned(err error) bool { return errors.Is(err, errUnsigned) }

func uncovered(index int64, why error) error {
	return fmt.Errorf("%w: leaf %d is sequenced, and no head covers it yet: %w", ErrUnavailable, index, why)
}

// run publishes once at the start, then on demand, and after a failure again
// until it succeeds. A lost race is no failure: another replica has published
// meanwhile, and the next round begins where that one ended. To lose again and
// again is one.
func (p *publisher) run(ctx context.Context) {
	backoff, lost := publishBackoff, 0
	for {
		began := time.Now()
		size, err := p.publish(p.shown(ctx))
		if errors.Is(err, errBehind) && ctx.Err() == nil && lost < lostRaces {
			lost++
			continue
		}
		if err == nil {
			publishDuration.Observe(time.Since(began).Seconds())
			sizePublished.Set(float64(size))
		} else if ctx.Err() == nil {
			publishFailures.Inc()
		}
		p.answer(size, p.checks.note(ctx, err))
		if err != nil {
			if ctx.Err() == nil {
				p.checks.logger.WarnContext(ctx, "no head was published", "err", err, "retry_in", backoff.String())
			}
			if !pause(ctx, backoff) {
				return
			}
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		backoff, lost = publishBackoff, 0
		for waited := false; !waited; waited = p.awaited() {
			select {
			case <-ctx.Done():
				return
			case <-p.kick:
			}
		}
	}
}

// shown puts a round into the trace of one of those who wait for it.
func (p *publisher) shown(ctx context.Context) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		return trace.ContextWithSpan(ctx, w.span)
	}
	return ctx
}

func (p *publisher) seen() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

func (p *publisher) awaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) > 0 || p.wanted > p.size
}

// answer wakes those whose leaf is published; on a contradiction all, because
// waiting longer does not mend it, and all where the signer gives no signature,
// because they would wait too long: their leaves stay, and a later round covers them.
func (p *publisher) answer(size int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	p.size = max(p.size, size)
	for w := range p.waiting {
		switch {
		case (err == nil || unsigned(err)) && w.index < size:
			w.done <- published{size: size}
		case errors.Is(err, ErrInconsistent):
			w.done <- published{err: err}
		case unsigned(err):
			w.done <- published{err: uncovered(w.index, err)}
		default:
			continue
		}
		delete(p.waiting, w)
	}
}

// publish makes the newest published head cover what is committed, and gives its
// size: that of the head before where only the signature was not to be had.
func (p *publisher) publish(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ctx, span := tracer.Start(ctx, "publish head")
	defer span.End()
	committed, newest, err := p.store.heads(ctx)
	if err != nil {
		return 0, err
	}
	sizeCommitted.Set(float64(committed.size))
	if newest == nil {
		first, err := p.sign(ctx, emptyRoot)
		if err != nil {
			return 0, err
		}
		newest = &first
	}
	if seen := p.seen(); committed.size < seen {
		if p.guard != nil { // which would say so at the next size
			return 0, refuse("the database is older than what was signed: it has %d leaves, and this process has seen a head of size %d", committed.size, seen)
		}
		return 0, fmt.Errorf("%w: the database has %d leaves, and this process has seen a head of size %d: it is an older copy", ErrInconsistent, committed.size, seen)
	}
	if err := p.extends(ctx, *newest, committed); err != nil {
		return 0, err
	}
	if committed.size == newest.TreeSize {
		if !p.passed { // a restored database is told at the start, before any append
			if err := p.pass(ctx, committed); err != nil {
				return newest.TreeSize, err
			}
			p.passed = true
		}
		return newest.TreeSize, nil
	}
	head, err := p.sign(ctx, committed)
	if unsigned(err) {
		return newest.TreeSize, err
	}
	p.passed = p.passed || err == nil
	return head.TreeSize, err
}

// extends checks that the committed tree is the published one with leaves added
// at its end, by a consistency proof from the stored nodes.
func (p *publisher) extends(ctx context.Context, head TreeHead, committed root) error {
	// One that verifiers refuse must not keep the log from a better one.
	if err := p.checks.head(head); err != nil && !errors.Is(err, errRetired) {
		return err
	}
	old, err := head.root()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	case committed.size < old.size:
		return fmt.Errorf("%w: %d leaves are committed, fewer than the %d published", ErrInconsistent, committed.size, old.size)
	case committed.size == old.size:
		if !bytes.Equal(committed.hash, old.hash) {
			return fmt.Errorf("%w: the committed root of size %d is not the published one", ErrInconsistent, old.size)
		}
		return nil
	case old.size == 0:
		return p.leadsToRoot(ctx, committed)
	}
	_, err = p.store.consistency(ctx, old, committed)
	return err
}

// leadsToRoot checks a whole tree: a consistency proof from the empty tree has
// no nodes and proves nothing.
func (p *publisher) leadsToRoot(ctx context.Context, committed root) error {
	size := uint64(committed.size)
	t, err := p.store.readTiles(ctx, size, compact.RangeNodes(0, size, nil))
	if err != nil {
		return err
	}
	computed, err := t.treeRoot()
	if err != nil || !bytes.Equal(computed, committed.hash) {
		return fmt.Errorf("%w: the stored leaves do not lead to the committed root of size %d", ErrInconsistent, size)
	}
	return nil
}

// sign signs and stores a head, or gives the one that another replica stored for
// the same size: the first stored stands.
func (p *publisher) sign(ctx context.Context, r root) (TreeHead, error) {
	head := r.head("")
	digest := head.Digest()

	if err := p.pass(ctx, r); err != nil {
		return TreeHead{}, err
	}
	crash.Point("log.guarded")

	signature, err := p.signer.Sign(ctx, digest)
	if err != nil {
		return TreeHead{}, fmt.Errorf("sign the head of size %d: %w: %w", r.size, errUnsigned, err)
	}
	key, err := p.checks.keys.SignedBy(digest, signature)
	if err == nil && key.Closed() {
		err = fmt.Errorf("it is by %s, and a closed key signs no new head", key.PublicKey)
	}
	if err != nil {
		return TreeHead{}, fmt.Errorf("sign the head of size %d: the signer's own signature: %w", r.size, err)
	}
	crash.Point("log.signed")

	head.Signature = signature
	stored, err := p.store.insertHead(ctx, head)
	if err != nil {
		return TreeHead{}, err
	}
	if stored.RootHash != head.RootHash {
		return TreeHead{}, fmt.Errorf("%w: two roots of size %d: %s is published, %s is committed", ErrInconsistent, r.size, stored.RootHash, head.RootHash)
	}
	if err := p.checks.head(stored); err != nil {
		return TreeHead{}, err
	}
	crash.Point("log.published")

	// The C2SP checkpoint and its witnesses belong here: they read the stored
	// head and add signatures of their own.

	return stored, nil
}

// consistency proves that the tree of the second root extends that of the first,
// from stored nodes, and verifies the proof. It may be asked for first = 0.
func (s *store) consistency(ctx context.Context, first, second root) ([][]byte, error) {
	nodes, err := proof.Consistency(uint64(first.size), uint64(second.size))
	if err != nil {
		return nil, err
	}
	t, err := s.readTiles(ctx, uint64(second.size), nodes.IDs)
	if err != nil {
		return nil, err
	}
	path, err := t.path(nodes)
	if err == nil {
		err = proof.VerifyConsistency(hasher, uint64(first.size), uint64(second.size), path, first.hash, second.hash)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: sizes %d and %d: %w", ErrInconsistent, first.size, second.size, shortly(err))
	}
	return path, nil
}
