package translog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairpact/fairpact/internal/forkguard"
)

const (
	publishBackoff = 100 * time.Millisecond
	maxBackoff     = 2 * time.Second
	// lostRaces rounds in a row may lose to other replicas. The next loss counts as a
	// failure, because a foreign program may be writing the guard's record.
	lostRaces = 10
)

// publisher signs and stores the committed head whenever an append waits. The head covers
// all leaves that were committed before the round.
type publisher struct {
	store  *store
	checks *checks
	tree   *tree
	signer Signer
	guard  forkguard.Guard // nil if the deployment has none
	adopt  *int64          // see Options.Adopt
	// guardAccepted says that the guard has accepted this database. proven is the tree of
	// the last round, nil if that round failed. Only run uses these two fields.
	guardAccepted bool
	proven        *root

	mu sync.Mutex
	// mu guards the fields up to handed. A waiter is answered once, when it is removed.
	size    int64 // the newest published size that this replica has seen; never falls
	wanted  int64 // the size that covers all leaves that appends have waited for
	waiting map[*waiter]struct{}
	lastErr error   // of the last round
	handed  *growth // the sequencer's last growth; nil: withdrawn

	kick chan struct{} // has a token if a waiter came after the last round began
}

type waiter struct {
	index int64
	span  trace.Span
	done  chan outcome[int64] // the size of a published head; buffered, so that the publisher never blocks
}

func newPublisher(s *store, c *checks, t *tree, signer Signer) *publisher {
	return &publisher{store: s, checks: c, tree: t, signer: signer, waiting: make(map[*waiter]struct{}), kick: make(chan struct{}, 1)}
}

// hand takes the growth that the sequencer committed. A nil growth withdraws the last one.
func (p *publisher) hand(g *growth) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handed = g
}

// wait returns the size of a published head that covers the leaf. It waits for a round to
// end, even if p.size already covers the leaf, because p.size may be wrong: the database
// may have been replaced by an older copy, in which another entry has the index.
//
// If the last round got no signature and p.size does not cover the leaf, wait returns an
// error at once.
func (p *publisher) wait(ctx, closed context.Context, index int64) (int64, error) {
	w := &waiter{index: index, span: trace.SpanFromContext(ctx), done: make(chan outcome[int64], 1)}
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
		return done.answer, done.err
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

// errUnsigned marks a round in which the signer returned no signature. The signer has
// already retried, so waiting longer does not help.
var errUnsigned = errors.New("the signer returned no signature")

func unsigned(err error) bool { return errors.Is(err, errUnsigned) }

func uncovered(index int64, why error) error {
	return fmt.Errorf("%w: leaf %d is sequenced, but no head covers it yet: %w", ErrUnavailable, index, why)
}

// run publishes at the start and then on demand. It retries a failed round until it
// succeeds. A round that lost a race to another replica is repeated at once. After
// lostRaces of these in a row, the next one counts as a failure.
func (p *publisher) run(ctx context.Context) {
	backoff, lost := publishBackoff, 0
	for {
		began := time.Now()
		size, err := p.round(p.traced(ctx))
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

// traced adds a round to the trace of one of its waiters.
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

// answer answers waiters after a round. A waiter whose leaf is published gets the size. A
// contradiction fails all waiters. A missing signature fails the waiters whose leaf has
// no head, although a later round will publish their leaves.
func (p *publisher) answer(size int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	p.size = max(p.size, size)
	for w := range p.waiting {
		switch {
		case (err == nil || unsigned(err)) && w.index < size:
			w.done <- outcome[int64]{answer: size}
		case errors.Is(err, ErrInconsistent):
			w.done <- outcome[int64]{err: err}
		case unsigned(err) && w.index >= p.size:
			w.done <- outcome[int64]{err: uncovered(w.index, err)}
		default:
			continue
		}
		delete(p.waiting, w)
	}
}

// signal puts a token into a channel of capacity one, unless the channel already has a
// token.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d, and reports false if ctx ended first.
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
