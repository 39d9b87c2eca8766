package translog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

const (
	publishBackoff = 100 * time.Millisecond
	maxBackoff     = 2 * time.Second
	// lostRaces is how many rounds in a row may lose to other replicas before that
	// is a failure: one more means that somebody else keeps writing the guard.
	lostRaces = 10
)

// publisher signs the committed head and stores the signature, whenever somebody
// waits for it. One head covers everything that was committed before the round.
type publisher struct {
	store  *store
	checks *checks
	tree   *tree
	signer Signer
	guard  Guard  // nil where the deployment has none
	adopt  *int64 // the published size at which an empty guard takes the database's word
	// passed says that the guard agreed with the database once, proven is the tree
	// of the last round, nil where that failed. Both are used only by run.
	passed bool
	proven *root

	mu sync.Mutex
	// All guarded by mu. size is the newest published size this replica has seen
	// and never falls, wanted the size that covers all who ever waited; a waiter is
	// answered once, when it is taken out.
	size    int64
	wanted  int64
	waiting map[*waiter]struct{}
	lastErr error // of the last round, nil where it succeeded
	// handed is the last growth that the sequencer committed, nil where it is not
	// known to continue the one before.
	handed *growth
	// kick holds a token whenever a waiter came after the last round began.
	kick chan struct{}
}

type waiter struct {
	index int64
	span  trace.Span
	done  chan published // has room for the one answer, so that the loop never blocks
}

type published struct {
	size int64
	err  error
}

func newPublisher(s *store, c *checks, t *tree, signer Signer) *publisher {
	return &publisher{store: s, checks: c, tree: t, signer: signer, waiting: make(map[*waiter]struct{}), kick: make(chan struct{}, 1)}
}

// hand takes what the sequencer committed, or nil.
func (p *publisher) hand(g *growth) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handed = g
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
// it is disabled, or may not be used. Waiting longer helps with neither.
var errUnsigned = errors.New("the signer returned no signature")

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
		size, err := p.round(p.shown(ctx))
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
// waiting longer does not help; and where the signer returns no signature those
// whose leaf has no head, because they would wait too long: their leaves stay,
// and a later round covers them.
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
		case unsigned(err) && w.index >= p.size:
			w.done <- published{err: uncovered(w.index, err)}
		default:
			continue
		}
		delete(p.waiting, w)
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
