//go:build soak

// Package soak runs deals of every kind for the duration in FAIRPACT_SOAK. It logs memory,
// goroutines, connections, open files and table sizes several times, so that leaks are visible.
// `make soak MINUTES=60` runs the test. To measure how speed depends on the size of the database,
// run the part `curve` of hack/bench.
package soak

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

const (
	players = 8
	pace    = time.Second // the shortest time between the starts of two deals in one goroutine
	keeping = 50          // at the end, the test repeats the requests of one deal in 50
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("FAIRPACT_SOAK"))
	if err != nil {
		t.Fatalf("set FAIRPACT_SOAK to the duration of the test, such as 60m: %v", err)
	}
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], "FAIRPACT_LOG_LEVEL=info")
		o.Env[localstack.LogServer] = []string{"FAIRPACT_FORK_GUARD=file://" + t.TempDir() + "/guard.json"}
	})
	w := e2e.OpenDB(t, stack)
	door := e2e.NewClient(t, stack.BaseURL())
	s := &e2e.RetryingClient{Clients: []*e2e.Client{door}}
	ctx, cancel := context.WithTimeout(t.Context(), length+10*e2e.DefaultTimeout)
	defer cancel()

	rest, began := measure(t, stack), time.Now()
	var mu sync.Mutex
	var deals int
	var kept []*e2e.LoadDeal
	var all sync.WaitGroup
	for i := range players {
		all.Go(func() {
			for n := i; time.Since(began) < length && ctx.Err() == nil; n += players {
				until := time.Now().Add(pace)
				d := &e2e.LoadDeal{T: t, S: s, Ctx: ctx, Past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				if err := d.Play(n); err != nil {
					t.Errorf("deal %d, %s: %v", n, d.Id, err)
				}
				mu.Lock()
				if deals++; deals%keeping == 0 {
					kept = append(kept, d)
				}
				mu.Unlock()
				reads := map[string]string{"/v1/log/tree-head": ""}
				// d.Id is "" if the service refused to create the deal because the request arrived
				// after the commit deadline.
				if d.Id != "" {
					reads["/v1/deals/"+d.Id] = d.Tokens[0]
				}
				for path, token := range reads {
					if _, err := door.Try(ctx, "GET", path, token, nil); err != nil {
						t.Errorf("GET %s: %v", path, err)
					}
				}
				e2e.Pause(ctx, time.Until(until))
			}
		})
	}
	window := min(5*time.Minute, length/4)
	e2e.Pause(ctx, window)
	tables, early := sizes(w), measure(t, stack)
	t.Logf("after %s: %d deals\n%s%s%s", window, w.Number("SELECT count(*) FROM deals"), early, early.latency(rest), tables)
	e2e.Pause(ctx, length-2*window)
	before := measure(t, stack)
	e2e.Pause(ctx, window-time.Second)
	late := measure(t, stack)
	all.Wait()
	t.Logf("after %s: %d deals, %d requests\n%s%s%s", length, deals, s.Attempts.Load(), late, late.latency(before), sizes(w))
	w.Converged()
	for _, d := range kept {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	e2e.Invariants(t, stack)
	door.Http.CloseIdleConnections()
	e2e.Eventually(t, "the processes have no more goroutines than before", e2e.DefaultTimeout, func() bool {
		for name, now := range measure(t, stack) {
			if now.goroutines > rest[name].goroutines+40 {
				return false
			}
		}
		return true
	})
	t.Logf("at rest before:\n%sat rest after:\n%s", rest, measure(t, stack))
}

type usage struct {
	rssMiB, heapMiB                    float64
	goroutines, connections, openFiles int
	calls                              map[string]call // by method and route
}

type call struct{ count, seconds float64 }

type usages map[string]usage

func measure(t *testing.T, stack *localstack.Stack) usages {
	t.Helper()
	all := usages{}
	for _, name := range stack.Names() {
		m, calls := e2e.Scrape(t, stack, name), map[string]call{}
		all[name] = usage{
			rssMiB: e2e.Sum(m["process_resident_memory_bytes"]) / (1 << 20), heapMiB: e2e.Sum(m["go_memstats_heap_inuse_bytes"]) / (1 << 20),
			goroutines: int(e2e.Sum(m["go_goroutines"])), openFiles: int(e2e.Sum(m["process_open_fds"])),
			connections: int(e2e.Sum(m["fairpact_database_connections"], "state", "idle") + e2e.Sum(m["fairpact_database_connections"], "state", "acquired")),
			calls:       calls,
		}
		for _, m := range m["fairpact_http_request_duration_seconds"].GetMetric() {
			var name []string
			for _, label := range m.GetLabel() {
				name = append(name, label.GetValue())
			}
			h := m.GetHistogram()
			calls[strings.Join(name, " ")] = call{float64(h.GetSampleCount()), h.GetSampleSum()}
		}
	}
	memory, err := e2e.Cache(t, stack).Info(t.Context(), "memory").Result()
	e2e.Must(t, err)
	_, rss, _ := strings.Cut(memory, "used_memory_rss:")
	var bytes float64
	_, err = fmt.Sscan(rss, &bytes)
	e2e.Must(t, err)
	all["redis"] = usage{rssMiB: bytes / (1 << 20)}
	return all
}

func (u usages) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %8s %8s %11s %11s %6s\n", "", "RSS MiB", "heap MiB", "goroutines", "connections", "files")
	for _, name := range slices.Sorted(maps.Keys(u)) {
		one := u[name]
		fmt.Fprintf(&b, "%-22s %8.0f %8.0f %11d %11d %6d\n", name, one.rssMiB, one.heapMiB, one.goroutines, one.connections, one.openFiles)
	}
	return b.String()
}

func (u usages) latency(earlier usages) string {
	var b strings.Builder
	now, then := u[localstack.DealAPI].calls, earlier[localstack.DealAPI].calls
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if n := now[name].count - then[name].count; n > 0 {
			fmt.Fprintf(&b, "%-48s %8.0f calls %8.2f ms\n", name, n, 1000*(now[name].seconds-then[name].seconds)/n)
		}
	}
	return b.String()
}

// sizes returns a line for each table that has rows. Bloat shows as more bytes per row.
func sizes(w e2e.DB) string {
	w.T.Helper()
	w.Exec(0, "ANALYZE")
	rows := w.Column(`SELECT format('%-26s %9s rows %7s dead %8s KiB heap %8s KiB indexes %6s B a row', schemaname || '.' || relname, n_live_tup, n_dead_tup,
			pg_table_size(relid) / 1024, pg_indexes_size(relid) / 1024, pg_total_relation_size(relid) / greatest(n_live_tup, 1))
		FROM pg_stat_user_tables WHERE n_live_tup > 0 ORDER BY pg_total_relation_size(relid) DESC`)
	return strings.Join(rows, "\n")
}
