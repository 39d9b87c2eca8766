// Package worker is the controller of deadline-worker. It calls escrow.ProcessDeal when a
// deadline passes, and for what a crash left unfinished. Any API call for an overdue deal does
// the same, so no caller depends on the worker. Two workers at once are harmless, because the
// database lets only one of them take each step.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const (
	relistEvery    = 500 * time.Millisecond
	horizon        = 3 * time.Second // look-ahead of relist; over relistEvery, so each deadline is listed several times
	listLimit      = 1000            // maximum number of deals of each kind in one list, besides those that fail
	atOnce         = 256             // deals that are processed at the same time; most of them wait for memory, a turn or a statement
	mostFailing    = 10 * listLimit  // of these, so that a list stays small
	completeEvery  = 4               // only one relist in 4 calls ListComplete, which reads every active deal
	sweepEvery     = time.Minute
	deletePause    = 50 * time.Millisecond // between two batches
	resealEvery    = 10 * time.Second
	resealPause    = 50 * time.Millisecond // between two batches, so that resealing does not slow down deals
	processTimeout = timelimits.Step
	firstRetry     = 100 * time.Millisecond // pause after the first failed ProcessDeal of a deal; it doubles with each failure, up to lastRetry
	lastRetry      = 5 * time.Second
)

// Deals are the use cases of package escrow that the worker calls.
type Deals interface {
	Due(ctx context.Context, horizon time.Duration, limit int) ([]store.Due, error)
	ProcessDeal(ctx context.Context, dealID string) (again time.Duration, err error)
	Reseal(ctx context.Context) (more bool, err error)
}

// Rows are the statements of package store that the worker runs without a use case.
type Rows interface {
	ListComplete(ctx context.Context, limit int) ([]string, error)
	Sweep(ctx context.Context) (int64, error)
	DeleteContents(ctx context.Context, age time.Duration) (int64, error)
	Load(ctx context.Context) (store.Load, error)
}

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/escrow/worker")

// Controller calls ProcessDeal for each deal that is due.
type Controller struct {
	deals    Deals
	rows     Rows
	memory   *budget.Process
	keep     time.Duration // how long ended deals keep their contents; 0: for ever
	logger   *slog.Logger
	failures *telemetry.Repeats
	listed   atomic.Bool
}

// New returns a Controller, which SetupWithManager adds to a manager. Each deal counts as a network of `memory`.
// `keep` is how long ended deals keep their params, title, message, inputs and seals; 0: for ever.
func New(deals Deals, rows Rows, memory *budget.Process, keep time.Duration, logger *slog.Logger) *Controller {
	return &Controller{deals: deals, rows: rows, memory: memory, keep: keep, logger: logger, failures: telemetry.NewRepeats(logger)}
}

// Ready returns an error until a relist has succeeded. A standby does not list deals, so
// deadline-worker asks only a leader.
func (c *Controller) Ready() error {
	if !c.listed.Load() {
		return errors.New("no listing of due deals has succeeded yet")
	}
	return nil
}

// SetupWithManager adds the controller and its loops to a manager.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	for _, loop := range []manager.RunnableFunc{c.sweep, c.deleteContents, c.measure, c.reseal} {
		if err := mgr.Add(loop); err != nil {
			return err
		}
	}
	return builder.TypedControllerManagedBy[string](mgr).
		Named("deal").
		WatchesRawSource(source.TypedFunc[string](c.feed)).
		WithOptions(controller.TypedOptions[string]{
			MaxConcurrentReconciles: atOnce,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		}).
		WithLogConstructor(func(deal *string) logr.Logger {
			if deal != nil { // discard controller-runtime's lines about a deal: Reconcile logs failures through c.failures
				return logr.Discard()
			}
			return mgr.GetLogger().WithValues("controller", "deal")
		}).
		Complete(c)
}

// Reconcile processes one deal. The queue keeps the smallest delay of each deal, so Reconcile may
// run too early. This is harmless, because ProcessDeal reads the deadline itself.
func (c *Controller) Reconcile(running context.Context, dealID string) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(running, processTimeout)
	defer cancel()
	ctx = telemetry.WithRequestID(ctx, cmp.Or(string(controller.ReconcileIDFromContext(ctx)), telemetry.NewRequestID()))
	ctx, span := tracer.Start(ctx, "reconcile deal", trace.WithNewRoot())
	defer span.End()
	ctx, call := c.memory.Begin(ctx, dealID)
	defer call.End()
	again, err := c.deals.ProcessDeal(ctx, dealID)
	if running.Err() != nil {
		return reconcile.Result{}, nil // this process is stopping; another worker will process the deal
	}
	if err != nil {
		span.SetStatus(codes.Error, "")
		c.failures.Failure(ctx, slog.LevelWarn, "deals cannot be processed, retrying", err, dealID)
		return reconcile.Result{}, err
	}
	if again > horizon {
		again = 0 // do not requeue: a later relist adds the deal in time
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// feed lists due deals into the queue until ctx ends.
func (c *Controller) feed(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) error {
	n, due, complete := -1, c.listing(c.due, queue), c.listing(c.complete, queue)
	go c.every(ctx, relistEvery, 10*time.Second, "due deals cannot be listed, retrying", func(ctx context.Context) (time.Duration, error) {
		n++
		err := due(ctx)
		if err == nil && n%completeEvery == 0 {
			err = complete(ctx)
		}
		if err == nil {
			c.listed.Store(true)
			lastRelist.SetToCurrentTime()
		}
		return 0, err
	})
	return nil
}

// every calls `do` until ctx ends, each time for at most `bound`. Calls start `usual` apart, or after
// the pause that `do` returns.
func (c *Controller) every(ctx context.Context, usual, bound time.Duration, failed string, do func(context.Context) (pause time.Duration, err error)) {
	for {
		began := time.Now()
		once, cancel := context.WithTimeout(ctx, bound)
		pause, err := do(once)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.failures.Failure(ctx, slog.LevelWarn, failed, err, "")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(cmp.Or(pause, usual-time.Since(began))):
		}
	}
}

// due lists the deals with a step that is due within the horizon.
func (c *Controller) due(ctx context.Context, limit int) ([]store.Due, error) {
	return c.deals.Due(ctx, horizon, limit)
}

// complete lists the deals of ListComplete: all parties have acted, but the next step was not taken.
func (c *Controller) complete(ctx context.Context, limit int) (all []store.Due, err error) {
	ids, err := c.rows.ListComplete(ctx, limit)
	for _, id := range ids {
		all = append(all, store.Due{DealID: id})
	}
	return all, err
}

// listing returns a function that adds the deals of a list to the queue. Deals that fail hide no others:
// the next list is longer by their number.
func (c *Controller) listing(list func(context.Context, int) ([]store.Due, error), queue workqueue.TypedRateLimitingInterface[string]) func(context.Context) error {
	failing := 0
	return func(ctx context.Context) error {
		limit := listLimit + min(failing, mostFailing)
		failing = 0
		deals, err := list(ctx, limit)
		if err != nil {
			return err
		}
		for _, d := range deals {
			if queue.NumRequeues(d.DealID) > 0 { // ProcessDeal has failed, and the retry is scheduled
				failing++
				continue
			}
			queue.AddAfter(d.DealID, time.Duration(d.In)*time.Millisecond)
		}
		return nil
	}
}

// reseal encrypts the stored inputs again, in batches, after a rotation of the server secret.
func (c *Controller) reseal(ctx context.Context) error {
	c.every(ctx, resealEvery, processTimeout, "stored inputs are not resealed, retrying", func(ctx context.Context) (time.Duration, error) {
		more, err := c.deals.Reseal(ctx)
		if more && err == nil {
			return resealPause, nil
		}
		return 0, err
	})
	return nil
}

func (c *Controller) sweep(ctx context.Context) error {
	c.every(ctx, sweepEvery, time.Hour, "idempotency records cannot be swept, retrying", func(ctx context.Context) (time.Duration, error) {
		n, err := c.rows.Sweep(ctx)
		if n > 0 {
			c.logger.DebugContext(ctx, "idempotency records swept", "count", n)
		}
		return 0, err
	})
	return nil
}

func (c *Controller) deleteContents(ctx context.Context) error {
	if c.keep == 0 {
		return nil
	}
	c.every(ctx, sweepEvery, processTimeout, "contents of ended deals cannot be deleted, retrying", func(ctx context.Context) (time.Duration, error) {
		n, err := c.rows.DeleteContents(ctx, c.keep)
		if n == 0 || err != nil {
			return 0, err
		}
		c.logger.InfoContext(ctx, "contents of ended deals deleted", "count", n)
		return deletePause, nil
	})
	return nil
}

const measureEvery = 5 * time.Second

// Only the leading worker sets these gauges. feed sets lastRelist. measure sets the others
// every measureEvery, because a query at each scrape would delay the scrape while the
// database hangs.
var (
	running = telemetry.NewGaugeVec("fairpact_deals",
		"Deals that have not ended, by phase; COMMITTING includes those shown as OPEN.", "state")
	oldest = telemetry.NewGaugeVec("fairpact_deals_oldest_age_seconds",
		"Time since the oldest deal of the phase was created; 0 if there is none.", "state")
	overdue = telemetry.NewGaugeVec("fairpact_deadline_overdue_seconds",
		"Time since the oldest unprocessed step (deadline or draw) became due; 0 if no step is due. A draw, and the opening of seals, which counts as a draw, may wait for the beacon.", "step")
	pending = telemetry.NewGauge("fairpact_certificates_pending",
		"Pending certificates: the deal has ended, and its certificate is not published yet.")
	pendingAge = telemetry.NewGauge("fairpact_certificates_pending_oldest_age_seconds",
		"Time since the oldest pending certificate was written; 0 if there is none.")
	lastRelist = telemetry.NewGauge("fairpact_deadline_last_relist_timestamp_seconds",
		"Unix time of the last successful listing of due deals; 0 before the first success and on a standby.")
)

// measure sets the gauges until ctx ends. Then it resets them, because a worker that no
// longer leads must show nothing.
func (c *Controller) measure(ctx context.Context) error {
	defer func() {
		for _, gauges := range []*prometheus.GaugeVec{running, oldest, overdue} {
			gauges.Reset()
		}
		for _, gauge := range []prometheus.Gauge{pending, pendingAge, lastRelist} {
			gauge.Set(0)
		}
	}()
	c.every(ctx, measureEvery, measureEvery, "deals cannot be counted, retrying", func(ctx context.Context) (time.Duration, error) {
		l, err := c.rows.Load(ctx)
		if err != nil {
			return 0, err
		}
		running.WithLabelValues(string(deal.Committing)).Set(float64(l.Committing))
		running.WithLabelValues(string(deal.Revealing)).Set(float64(l.Revealing))
		oldest.WithLabelValues(string(deal.Committing)).Set(l.CommittingAge)
		oldest.WithLabelValues(string(deal.Revealing)).Set(l.RevealingAge)
		overdue.WithLabelValues("deadline").Set(l.Overdue)
		overdue.WithLabelValues("draw").Set(l.DrawOverdue)
		pending.Set(float64(l.Pending))
		pendingAge.Set(l.PendingAge)
		return 0, nil
	})
	return nil
}
