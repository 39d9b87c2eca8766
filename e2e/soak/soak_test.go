//go:build soak

// Package soak plays mixed load for as long as it is told and reports what grows.
// `make soak MINUTES=60` runs it.
package soak

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

const (
	players = 8
	pace    = time.Second // of one player's deals
	keeping = 50          // one of so many deals is held to its promises at the end
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("FAIRPACT_SOAK"))
	if err != nil {
		t.Fatalf("FAIRPACT_SOAK is how long to play, such as 60m: %v", err)
	}
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], "FAIRPACT_LOG_LEVEL=info")
		o.Env[localstack.LogServer] = []string{"FAIRPACT_FORK_GUARD=file://" + t.TempDir() + "/guard.json"}
	})
	w := e2e.Database(t, stack)
	door := e2e.NewClient(t, stack.BaseURL())
	times := &stopwatch{next: door.Http.Transport, began: time.Now()}
	door.Http.Transport = times
	s := &e2e.Stubborn{Doors: []*e2e.Client{door}}
	ctx, cancel := context.WithTimeout(t.Context(), length+10*e2e.Patience)
	defer cancel()

	rest := measure(t, stack)
	var mu sync.Mutex
	var deals int
	var kept []*e2e.Soaked
	var all sync.WaitGroup
	for i := range players {
		all.Go(func() {
			for n := i; time.Since(times.began) < length && ctx.Err() == nil; n += players {
				until := time.Now().Add(pace)
				d := &e2e.Soaked{T: t, S: s, Ctx: ctx, Past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				if err := d.Play(n); err != nil {
					t.Errorf("deal %d, %s: %v", n, d.Id, err)
				}
				mu.Lock()
				if deals++; deals%keeping == 0 {
					kept = append(kept, d)
				}
				mu.Unlock()
				paths := []string{"/v1/log/tree-head"} // reads beside the writes
				token := ""
				if d.Id != "" { // its deadline may have come before it did
					paths, token = append(paths, "/v1/deals/"+d.Id), d.Tokens[0]
				}
				for _, path := range paths {
					if _, err := door.Try(ctx, "GET", path, token, nil); err != nil {
						t.Error(err)
					}
				}
				e2e.Pause(ctx, time.Until(until))
			}
		})
	}
	window := min(5*time.Minute, length/4)
	e2e.Pause(ctx, window)
	tables, early := sizes(w), measure(t, stack)
	t.Logf("after %s: %d deals\n%s%s", window, w.Number("SELECT count(*) FROM deals"), early, tables)
	e2e.Pause(ctx, length-window-time.Second)
	late := measure(t, stack)
	all.Wait()
	t.Logf("after %s: %d deals, %d requests\n%s%s", length, deals, s.Attempts.Load(), late, sizes(w))
	t.Logf("latency of the first and the last %s:\n%s", window, times.report(window, length))
	w.Converged()
	for _, d := range kept {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	e2e.Invariants(t, stack)
	door.Http.CloseIdleConnections()
	e2e.Eventually(t, "no goroutine is left over", e2e.Patience, func() bool {
		for name, now := range measure(t, stack) {
			if now.goroutines > rest[name].goroutines+40 {
				return false
			}
		}
		return true
	})
	t.Logf("at rest before:\n%sat rest after:\n%s", rest, measure(t, stack))
}

// usage is what a process holds.
type usage struct {
	rssMiB, heapMiB                    float64
	goroutines, connections, openFiles int
}

type usages map[string]usage

func measure(t *testing.T, stack *localstack.Stack) usages {
	t.Helper()
	all := usages{}
	for _, name := range stack.Names() {
		m := e2e.Scrape(t, stack, name)
		all[name] = usage{
			rssMiB: e2e.Sum(m["process_resident_memory_bytes"]) / (1 << 20), heapMiB: e2e.Sum(m["go_memstats_heap_inuse_bytes"]) / (1 << 20),
			goroutines: int(e2e.Sum(m["go_goroutines"])), openFiles: int(e2e.Sum(m["process_open_fds"])),
			connections: int(e2e.Sum(m["fairpact_database_connections"], "state", "idle") + e2e.Sum(m["fairpact_database_connections"], "state", "acquired")),
		}
	}
	for name, pid := range map[string]int{"postgres (postmaster)": stack.Postgres().PID(), "redis": stack.Redis().PID()} {
		all[name] = usage{rssMiB: rss(t, pid)}
	}
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

func rss(t *testing.T, pid int) float64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); fields[0] == "VmRSS:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib / 1024
		}
	}
	t.Fatalf("process %d has no VmRSS", pid)
	return 0
}

// sizes is every table with its rows and bytes, and bytes a row, which bloat raises.
func sizes(w e2e.Witness) string {
	w.T.Helper()
	w.Exec(0, "ANALYZE")
	rows := w.Column(`SELECT format('%-26s %9s rows %7s dead %8s KiB heap %8s KiB indexes %6s B a row', schemaname || '.' || relname, n_live_tup, n_dead_tup,
			pg_table_size(relid) / 1024, pg_indexes_size(relid) / 1024, pg_total_relation_size(relid) / greatest(n_live_tup, 1))
		FROM pg_stat_user_tables WHERE n_live_tup > 0 ORDER BY pg_total_relation_size(relid) DESC`)
	return strings.Join(rows, "\n")
}

// stopwatch notes how long each request took.
type stopwatch struct {
	next  http.RoundTripper
	began time.Time
	mu    sync.Mutex
	took  []lap
}

type lap struct {
	call     string
	at, took time.Duration
}

func (s *stopwatch) RoundTrip(r *http.Request) (*http.Response, error) {
	next := s.next
	if next == nil {
		next = http.DefaultTransport
	}
	begun := time.Now()
	resp, err := next.RoundTrip(r)
	call := r.Method
	for part := range strings.SplitSeq(r.URL.Path, "/") { // without identifiers
		if part != "" && !strings.Contains(part, "_") {
			call += " " + part
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, lap{call, begun.Sub(s.began), time.Since(begun)})
	return resp, err
}

func (s *stopwatch) report(window, length time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last := map[string][]time.Duration{}, map[string][]time.Duration{}
	for _, l := range s.took {
		if l.at < window {
			first[l.call] = append(first[l.call], l.took)
		} else if l.at > length-window && l.at < length {
			last[l.call] = append(last[l.call], l.took)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-32s %8s %9s %9s %9s %9s\n", "", "calls", "p50", "p99", "p50 end", "p99 end")
	for _, call := range slices.Sorted(maps.Keys(last)) {
		fmt.Fprintf(&b, "%-32s %8d %9s %9s %9s %9s\n", call, len(last[call]), percentile(first[call], 50), percentile(first[call], 99), percentile(last[call], 50), percentile(last[call], 99))
	}
	return b.String()
}

func percentile(all []time.Duration, p int) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return all[min(len(all)*p/100, len(all)-1)].Round(100 * time.Microsecond).String()
}
