// Package deadline is the worker's controller: it attends each deal at the
// exact second of its deadline and finishes what a dead process left. The rules
// are in package escrow; a call that meets an overdue deal applies them as well,
// so the worker is never late for anyone who asks. Two workers at once do no
// harm: every step is decided by the database.
package deadline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/telemetry"
)

const (
	relistEvery   = 500 * time.Millisecond
	horizon       = 3 * time.Second // ahead of now: several relists see a deadline before it comes
	completeEvery = 4               // relists; the look at every active deal
	sweepEvery    = time.Minute
	resealEvery   = 10 * time.Second
	resealPause   = 50 * time.Millisecond // between two batches: deals come first
	attendBound   = 20 * time.Second
	firstRetry    = 100 * time.Millisecond
	lastRetry     = 5 * time.Second
)

// Deals is what the worker needs of the escrow.
type Deals interface {
	Due(ctx context.Context, horizon time.Duration) ([]store.Due, error)
	Complete(ctx context.Context) ([]string, error)
	Attend(ctx context.Context, dealID string) (again time.Duration, err error)
	Sweep(ctx context.Context) (int64, error)
	Load(ctx context.Context) (store.Load, error)
	Reseal(ctx context.Context) (more bool, err error)
}

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/deadline")

// Controller attends deals.
type Controller struct {
	deals    Deals
	logger   *slog.Logger
	failures *telemetry.Repeats
	listed   atomic.Bool // the first relist has succeeded
}

// New makes a Controller.
func New(deals Deals, logger *slog.Logger) *Controller {
	return &Controller{deals: deals, logger: logger, failures: telemetry.NewRepeats(logger)}
}

// Ready reports whether a relist has succeeded since the start. A worker that
// waits for its lease has not listed and is not needed either: the caller
// decides what that means.
func (c *Controller) Ready() error {
	if !c.listed.Load() {
		return errors.New("no listing of due deals has succeeded yet")
	}
	return nil
}

// SetupWithManager adds the controller and the sweep to a manager. workers is
// how many deals are attended at once.
func (c *Controller) SetupWithManager(mgr manager.Manager, workers int) error {
	for _, loop := range []manager.RunnableFunc{c.sweep, c.measure, c.reseal} {
		if err := mgr.Add(loop); err != nil {
			return err
		}
	}
	return builder.TypedControllerManagedBy[string](mgr).
		Named("deal").
		WatchesRawSource(source.TypedFunc[string](c.feed)).
		WithOptions(controller.TypedOptions[string]{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		}).
		WithLogConstructor(func(deal *string) logr.Logger {
			if deal != nil { // each failure has been counted in failures; controller-runtime would log it again
				return logr.Discard()
			}
			return mgr.GetLogger().WithValues("controller", "deal")
		}).
		Complete(c)
}

// Reconcile attends one deal. The queue keeps the smaller delay of two adds, so
// the row is read again and says when it is due.
func (c *Controller) Reconcile(running context.Context, dealID string) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(running, attendBound)
	defer cancel()
	ctx = telemetry.WithRequestID(ctx, cmp.Or(string(controller.ReconcileIDFromContext(ctx)), telemetry.NewRequestID()))
	ctx, span := tracer.Start(ctx, "reconcile deal", trace.WithNewRoot())
	defer span.End()
	again, err := c.deals.Attend(ctx, dealID)
	if running.Err() != nil {
		return reconcile.Result{}, nil // told to stop: the next worker attends it
	}
	if err != nil {
		span.SetStatus(codes.Error, "")
		c.failures.Failure(ctx, slog.LevelWarn, "deals wait, retrying", err, dealID)
		return reconcile.Result{}, err
	}
	if again > horizon {
		again = 0 // the relist brings it back in time
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// feed lists until ctx ends. The list is the truth: whatever a crash, a lost
// notification or another worker did, the next one shows what is due.
func (c *Controller) feed(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) error {
	go func() {
		tick := time.NewTicker(relistEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			if err := c.relist(ctx, queue, n%completeEvery == 0); err != nil && ctx.Err() == nil {
				c.failures.Failure(ctx, slog.LevelWarn, "due deals cannot be listed, retrying", err, "")
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return nil
}

func (c *Controller) relist(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], all bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	due, err := c.deals.Due(ctx, horizon)
	if err != nil {
		return err
	}
	for _, d := range due {
		if queue.NumRequeues(d.DealID) > 0 {
			continue // it failed lately and waits its turn
		}
		queue.AddAfter(d.DealID, time.Duration(d.In)*time.Millisecond)
	}
	if all {
		complete, err := c.deals.Complete(ctx)
		if err != nil {
			return err
		}
		for _, dealID := range complete {
			if queue.NumRequeues(dealID) == 0 {
				queue.Add(dealID)
			}
		}
	}
	c.listed.Store(true)
	lastRelist.SetToCurrentTime()
	return nil
}

// reseal does what a rotation of the server secret leaves to do.
func (c *Controller) reseal(ctx context.Context) error {
	for {
		pause := resealEvery
		more, err := c.resealOnce(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.failures.Failure(ctx, slog.LevelWarn, "stored inputs are not resealed, retrying", err, "")
		case more:
			pause = resealPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (c *Controller) resealOnce(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, attendBound)
	defer cancel()
	return c.deals.Reseal(ctx)
}

func (c *Controller) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if n, err := c.deals.Sweep(ctx); err != nil {
				c.logger.WarnContext(ctx, "idempotency records cannot be swept", "err", err)
			} else if n > 0 {
				c.logger.DebugContext(ctx, "idempotency records swept", "count", n)
			}
		}
	}
}
