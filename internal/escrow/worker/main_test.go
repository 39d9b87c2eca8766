package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// The tests run in a bubble of package synctest. The clock of a bubble is fake, so the times
// in these tests are exact on any machine. A goroutine that outlives the controller fails the
// test.

type attendance struct {
	deal string
	at   time.Duration // since deals.began
}

const kept = 48 * time.Hour

// deals is a fake of the interface Deals. Its ProcessDeal ends a deal whose deadline has passed.
type deals struct {
	began time.Time

	mu       sync.Mutex
	due      map[string]time.Duration // time from began to the deadline of each deal
	complete map[string]bool
	ended    map[string]int
	calls    []attendance
	sweeps   []time.Duration
	listing  error
	lists    []time.Duration
	listTime time.Duration // how long a call of Due takes
	sweeping error
	deletes  []time.Duration
	toDelete int64
	reseals  []time.Duration
	toReseal int
	log      slog.Handler

	// attend, if not nil, runs before the fake's own ProcessDeal and replaces it if `final` is true.
	attend func(ctx context.Context, deal string) (again time.Duration, err error, final bool)
}

func newDeals(due map[string]time.Duration) *deals {
	return &deals{began: time.Now(), log: slog.DiscardHandler, due: due, complete: map[string]bool{}, ended: map[string]int{}}
}

func (d *deals) now() time.Duration { return time.Since(d.began) }

func (d *deals) Due(_ context.Context, horizon time.Duration, limit int) (all []store.Due, err error) {
	d.mu.Lock()
	d.lists = append(d.lists, d.now())
	d.mu.Unlock()
	time.Sleep(d.listTime)
	d.mu.Lock()
	defer d.mu.Unlock()
	for deal, deadline := range d.due {
		if in := deadline - d.now(); in <= horizon {
			all = append(all, store.Due{DealID: deal, In: in.Milliseconds()})
		}
	}
	slices.SortFunc(all, func(a, b store.Due) int { return cmp.Compare(a.In, b.In) })
	return all[:min(limit, len(all))], d.listing
}

func (d *deals) ListComplete(_ context.Context, limit int) (all []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for deal := range d.complete {
		all = append(all, deal)
	}
	slices.Sort(all)
	return all[:min(limit, len(all))], d.listing
}

func (d *deals) Load(context.Context) (store.Load, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return store.Load{Committing: int64(len(d.due))}, d.listing
}

func (d *deals) ProcessDeal(ctx context.Context, deal string) (time.Duration, error) {
	d.mu.Lock()
	d.calls = append(d.calls, attendance{deal, d.now()})
	attend := d.attend
	d.mu.Unlock()
	if attend != nil {
		if again, err, final := attend(ctx, deal); final {
			return again, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if wait := d.due[deal] - d.now(); wait > 0 {
		return wait, nil
	}
	d.end(deal)
	return 0, nil
}

func (d *deals) end(deal string) {
	_, waits := d.due[deal]
	if waits || d.complete[deal] {
		d.ended[deal]++
	}
	delete(d.due, deal)
	delete(d.complete, deal)
}

func (d *deals) Sweep(context.Context) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweeps = append(d.sweeps, d.now())
	return 1, d.sweeping
}

func (d *deals) DeleteContents(_ context.Context, age time.Duration) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deletes = append(d.deletes, d.now())
	d.toDelete--
	if age != kept || d.toDelete < 0 {
		return 0, nil
	}
	return 1, nil
}

func (d *deals) Reseal(context.Context) (more bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reseals = append(d.reseals, d.now())
	d.toReseal--
	return d.toReseal > 0, d.sweeping
}

func (d *deals) times(deal string) (all []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, call := range d.calls {
		if call.deal == deal {
			all = append(all, call.at)
		}
	}
	return all
}

func (d *deals) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
}

func (d *deals) endings(deal string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended[deal]
}

func bubble(t *testing.T, due map[string]time.Duration, prepare func(*deals), test func(*testing.T, *deals, *Controller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDeals(due)
		if prepare != nil {
			prepare(d)
		}
		c, stop := start(t, d)
		test(t, d, c)
		stop()
	})
}

// start starts a controller in a manager with the settings of a deadline-worker that runs
// without leader election.
func start(t *testing.T, d *deals) (c *Controller, stop func()) {
	t.Helper()
	anyName := true
	mgr, err := manager.New(&rest.Config{}, manager.Options{
		Metrics:    metrics.Options{BindAddress: "0"},
		Logger:     logr.FromSlogHandler(d.log),
		Controller: config.Controller{SkipNameValidation: &anyName},
	})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := budget.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	c = New(d, d, memory, kept, slog.New(d.log))
	if err := c.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return c, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager ends with %v, want no error", err)
		}
	}
}
