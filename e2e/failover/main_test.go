//go:build long

// Package failover holds the service to its promises while its database fails
// over to a streaming standby, and after a restore from a backup.
package failover

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair starts a primary with the service's database, and its standby.
func pair(t *testing.T) (primary, standby *localservers.Postgres) {
	t.Helper()
	primary, err := localservers.StartPostgres(t.Context(), localservers.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, primary.Close()) })
	_, err = primary.EnsureDatabase(t.Context(), "fairpact")
	must(t, err)
	standby, err = primary.StartStandby(t.Context(), localservers.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, standby.Close()) })
	return primary, standby
}

// guarded is the environment of a log-server with a fork guard of the test's own.
func guarded(t *testing.T) []string {
	return []string{"FAIRPACT_FORK_GUARD=file://" + t.TempDir() + "/guard.json"}
}

// heads is every tree head that any client saw, by size.
type heads struct {
	mu   sync.Mutex
	seen map[int64]string
}

// watch asks for tree heads until the context ends. A size that has two roots is a
// fork.
func (h *heads) watch(ctx context.Context, t *testing.T, clients ...*e2e.Client) (wait func()) {
	h.seen = map[int64]string{}
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if a, err := c.Try(ctx, "GET", "/v1/log/tree-head", "", nil); err == nil && a.Status == 200 {
					h.note(t, a.Body)
				}
				e2e.Pause(ctx, 20*time.Millisecond)
			}
		})
	}
	return all.Wait
}

func (h *heads) note(t *testing.T, text []byte) {
	var head struct {
		Size int64  `json:"tree_size"`
		Root string `json:"root_hash"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if root, known := h.seen[head.Size]; known && root != head.Root {
		t.Errorf("two heads of size %d: %s and %s", head.Size, root, head.Root)
	}
	h.seen[head.Size] = head.Root
}

// stand holds every head that was seen against the log: its tables have it, and
// e2e.Invariants leads their leaves to its root.
func (h *heads) stand(w e2e.Witness) {
	w.T.Helper()
	for size, root := range h.seen {
		if n := w.Number("SELECT count(*) FROM translog.tree_heads WHERE tree_size = $1 AND encode(root, 'hex') = $2", size, root); n != 1 {
			w.T.Errorf("the head of size %d and root %s, which a client saw, is not in the log", size, root)
		}
	}
}

// load plays deals of every kind until it is stopped.
type load struct {
	s    *e2e.Stubborn
	mu   sync.Mutex
	all  []*e2e.Soaked
	stop context.CancelFunc
	wg   sync.WaitGroup
}

const players = 8

func start(ctx context.Context, t *testing.T, stack *localstack.Stack, doors ...*e2e.Client) *load {
	l := &load{s: &e2e.Stubborn{Doors: doors}}
	more, stop := context.WithCancel(ctx)
	l.stop = stop
	for i := range players {
		l.wg.Go(func() {
			for n := i; more.Err() == nil; n += players {
				d := &e2e.Soaked{T: t, S: l.s, Ctx: ctx, Past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				if err := d.Play(n); err != nil {
					t.Errorf("deal %d, %s: %v", n, d.Id, err)
				}
				l.mu.Lock()
				l.all = append(l.all, d)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// ended stops the load, waits for the end of every deal and holds the service to
// what it acknowledged.
func (l *load) ended(t *testing.T, stack *localstack.Stack) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	e2e.Database(t, stack).Converged()
	for _, d := range l.all {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	e2e.Invariants(t, stack)
}

// answers returns when a door takes a write again.
func answers(ctx context.Context, door *e2e.Client) error {
	for ctx.Err() == nil {
		if a, err := door.Try(ctx, "POST", "/v1/keys", "", nil); err == nil && a.Status < 300 {
			return nil
		}
		e2e.Pause(ctx, 5*time.Millisecond)
	}
	return errors.New("no key is made any more")
}
