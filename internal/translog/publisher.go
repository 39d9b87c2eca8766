package translog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/platform/batch"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

const (
	publishBackoff = 100 * time.Millisecond
	maxBackoff     = 2 * time.Second
	// maxLostRaces is how often the publisher retries without a backoff, because another process
	// changed the fork guard's record first (errGuardConflict). A success resets the count. One
	// more errGuardConflict is a failure, because another program may be writing the record.
	maxLostRaces = 10
)

// publisher signs and stores the committed tree head whenever an append waits for a signed head.
// The head of a round covers all leaves whose appends waited when the round began.
type publisher struct {
	store  *store
	checks *checks
	tree   *tree
	signer Signer
	guard  forkguard.Guard // nil if the deployment has none
	adopt  *int64          // Options.Adopt: if the guard has no record, accept only a newest head of this size
	// guardAccepted is true once the guard has accepted this database. proven is the root that
	// the last round verified, or nil if that round failed. Only the goroutine of run uses them.
	guardAccepted bool
	proven        *root

	mu sync.Mutex
	// mu guards the fields from size to lastBatch.
	size      int64 // the largest size of a published head that this replica has seen
	wanted    int64 // the smallest tree size that covers every leaf that an append has waited for
	waiting   map[*waiter]struct{}
	lastErr   error       // the error of the last round
	lastBatch *batchDelta // the batch that the sequencer committed last; nil makes the next round read the tables

	kick chan struct{} // has capacity 1; a token wakes the goroutine of run
}

type waiter struct {
	index int64
	span  trace.Span
	done  chan published // buffered, so that the publisher never blocks
}

// published is the size of a published head that covers the waiter's leaf, or why there is none.
type published struct {
	size int64
	err  error
}

var errClosed = unavailable(batch.ErrClosed)

func newPublisher(s *store, c *checks, t *tree, signer Signer) *publisher {
	return &publisher{store: s, checks: c, tree: t, signer: signer, waiting: make(map[*waiter]struct{}), kick: make(chan struct{}, 1)}
}

// setLastBatch stores the batch that the sequencer committed last. If g is nil, the next round
// reads the tables.
func (p *publisher) setLastBatch(g *batchDelta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastBatch = g
}

// wait returns the size of a published head that covers the leaf. It waits for a round even if p.size is larger than index, because the database may have been
// replaced by an older copy. Then the sequencer assigns indexes below p.size again, and no
// published head covers the new leaves.
//
// If the last round got no signature and p.size does not cover the leaf, wait returns an
// error at once.
func (p *publisher) wait(ctx, closed context.Context, index int64) (int64, error) {
	w := &waiter{index: index, span: trace.SpanFromContext(ctx), done: make(chan published, 1)}
	p.mu.Lock()
	p.wanted = max(p.wanted, index+1)
	why := p.lastErr
	away := unsigned(why) && index >= p.size
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
		why = fmt.Errorf("%w (the last attempt to publish a head failed: %w)", why, p.lastErr)
	}
	return uncovered(w.index, why)
}

// errUnsigned is returned by a round in which the signer returned no signature. The signer
// has already retried, so the callers do not wait for the next round.
var errUnsigned = errors.New("the signer returned no signature")

func unsigned(err error) bool { return errors.Is(err, errUnsigned) }

func uncovered(index int64, why error) error {
	return fmt.Errorf("%w: leaf %d is sequenced, but no head covers it yet: %w", ErrUnavailable, index, why)
}

// run publishes a head at the start and then on demand. After a failed round it backs off
// and retries until a round succeeds. It repeats a round at once if that round lost the race
// for the fork guard (see maxLostRaces).
func (p *publisher) run(ctx context.Context) {
	backoff, lost := publishBackoff, 0
	for {
		began := time.Now()
		size, err := p.round(p.traced(ctx))
		if errors.Is(err, errGuardConflict) && ctx.Err() == nil && lost < maxLostRaces {
			lost++
			continue
		}
		if err == nil {
			publishDuration.Observe(time.Since(began).Seconds())
			sizePublished.Set(float64(size))
		} else if ctx.Err() == nil {
			publishFailures.Inc()
		}
		p.answer(size, p.checks.recordFailure(ctx, err))
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

// traced returns ctx with the span of one waiting append, so that the spans of publishing join the
// trace of that append.
func (p *publisher) traced(ctx context.Context) context.Context {
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

// answer answers the waiting appends after a round. If the head covers an append's leaf, the append
// gets the head's size. ErrInconsistent fails all appends.
// errUnsigned fails the appends whose leaf no head covers, although a later round will publish
// the leaf. All other appends wait for the next round.
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

// signal never blocks. The channel must have capacity one, so that no signal is lost.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

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
