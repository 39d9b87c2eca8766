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
	// maxLostRaces is how often the publisher retries errGuardConflict without a backoff. One more
	// is a failure, because another program may be writing the record.
	maxLostRaces = 10
)

// publisher runs a round whenever an append waits. Its head covers all leaves that waited when it began.
type publisher struct {
	store  *store
	checks *checks
	tree   *tree
	signer Signer
	guard  forkguard.Guard // nil if the deployment has none
	adopt  *int64          // Options.Adopt

	// Only the goroutine of run uses these fields.
	logGuard      string // identity of the guard that the database named last
	guardAccepted bool   // the guard has accepted this database
	proven        *root  // what the last round verified; nil if it failed

	mu sync.Mutex
	// mu guards the fields from size to lastBatch.
	size      int64 // the largest size of a published head that this replica has seen
	wanted    int64 // covers every leaf that an append has waited for
	waiting   map[*waiter]struct{}
	lastErr   error       // of the last round
	lastBatch *batchDelta // committed last by the sequencer; nil makes the next round read the tables

	kick chan struct{} // has capacity 1; a token wakes the goroutine of run
}

type waiter struct {
	index int64
	span  trace.Span
	done  chan published // buffered, so that the publisher never blocks
}

type published struct {
	size int64
	err  error
}

func (p *publisher) setLastBatch(g *batchDelta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastBatch = g
}

// wait returns the size of a published head that covers the leaf. It waits for a round even if
// p.size is larger than index: if the database was replaced by an older copy, the sequencer
// assigns indexes below p.size again, and no published head covers the new leaves.
func (p *publisher) wait(ctx, closed context.Context, index int64) (int64, error) {
	w := &waiter{index: index, span: trace.SpanFromContext(ctx), done: make(chan published, 1)}
	p.mu.Lock()
	p.wanted = max(p.wanted, index+1)
	why := p.lastErr
	away := errors.Is(why, errUnsigned) && index >= p.size
	if !away {
		p.waiting[w] = struct{}{}
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
	if away {
		return 0, uncovered(index, why)
	}
	select {
	case done := <-w.done:
		return done.size, done.err
	case <-ctx.Done():
		return 0, p.leave(w, ctx.Err())
	case <-closed.Done():
		return 0, p.leave(w, unavailable(batch.ErrClosed))
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

// errUnsigned is returned by a round in which the signer, after its retries, returned no signature.
var errUnsigned = errors.New("the signer returned no signature")

func uncovered(index int64, why error) error {
	return fmt.Errorf("%w: leaf %d is sequenced, but no head covers it yet: %w", ErrUnavailable, index, why)
}

// run publishes a head at the start and then on demand.
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

// traced lets the spans of a round join the trace of one waiting append.
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

// answer answers the waiting appends after a round, except those that wait for the next one.
func (p *publisher) answer(size int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	p.size = max(p.size, size)
	unsigned := errors.Is(err, errUnsigned)
	for w := range p.waiting {
		switch {
		case (err == nil || unsigned) && w.index < size:
			w.done <- published{size: size}
		case errors.Is(err, ErrInconsistent):
			w.done <- published{err: err}
		case unsigned && w.index >= p.size:
			w.done <- published{err: uncovered(w.index, err)}
		default:
			continue
		}
		delete(p.waiting, w)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
