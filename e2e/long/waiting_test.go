//go:build long

package long

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

const (
	waiters = 5000
	events  = 100
)

// crowd is calls that wait at one replica, each for a deal of its own.
type crowd struct {
	client *e2e.Client
	key    string
	deals  []*e2e.Dealt
	got    []chan time.Time // when each was answered
}

// newCrowd creates the deals and connects from ten addresses of the loopback
// network: as many networks, each within its bound.
func newCrowd(t *testing.T, stack *localstack.Stack) *crowd {
	c := &crowd{client: e2e.NewClient(t, stack.BaseURL()), deals: make([]*e2e.Dealt, waiters)}
	c.key = c.client.Key()
	c.create(t, 0, waiters)
	return c
}

// create puts new deals in the place of n of them.
func (c *crowd) create(t *testing.T, first, n int) {
	b := e2e.Timed(e2e.SplitBody(0, 0), time.Now().Add(time.Hour).Unix(), time.Now().Add(2*time.Hour).Unix())
	for i := first; i < first+n; i++ {
		a, err := c.client.Try(t.Context(), "POST", "/v1/deals", c.key, b)
		if err != nil || a.Status != 201 {
			t.Fatalf("%d %s %v", a.Status, a.Body, err)
		}
		c.deals[i] = c.client.Created(c.key, a)
	}
}

func from(i int) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%10))}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: time.Minute}
}

// wait begins all waits at a replica.
func (c *crowd) wait(t *testing.T, stack *localstack.Stack, name, since string, finished *sync.WaitGroup) {
	c.got = make([]chan time.Time, len(c.deals))
	for i, d := range c.deals {
		c.got[i] = make(chan time.Time, 1)
		via := &e2e.Client{T: t, Base: stack.URL(name), Http: from(i)}
		finished.Go(func() {
			a, err := via.Try(t.Context(), "GET", d.Path("?wait=45&since="+since), d.Tokens[0], nil)
			if err != nil || a.Status != 200 {
				t.Errorf("call %d: %d %.200s %v", i, a.Status, a.Body, err)
			}
			c.got[i] <- time.Now()
		})
	}
	e2e.Eventually(t, "all wait", 2*e2e.Patience, func() bool {
		return e2e.Sum(e2e.Scrape(t, stack, name)["fairpact_waiting_calls"]) == waiters
	})
}

// play commits to some of the deals, within a few seconds, and returns how long
// after each answer to the commit the call that waits was answered; below zero
// where that was sooner.
func (c *crowd) play(t *testing.T, first int) []time.Duration {
	took := make([]time.Duration, events)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			c.deals[first+i].Commit(1, e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}))
			began := time.Now()
			took[i] = (<-c.got[first+i]).Sub(began)
		})
		e2e.Pause(t.Context(), 30*time.Millisecond)
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// residentMB is the resident memory of a process.
func residentMB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}

// Five thousand calls that wait cost memory and hardly a statement, and each is
// answered soon after its deal has changed: with Redis, without it, from another
// replica, and at a drain. The figures are logged; how fast it is depends on the
// machine and is no verdict.
func TestThousandsOfWaiters(t *testing.T) {
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2}
		o.Env[""] = append(o.Env[""], "FAIRPACT_LOG_LEVEL=info")
	})
	c := newCrowd(t, stack)
	var redisDown bool
	for _, run := range []struct {
		what, at string
		first    int
	}{
		{"with Redis, one replica", localstack.DealAPI, 0},
		{"with Redis, from another replica", e2e.SecondAPI, 100},
		{"without Redis, one replica", localstack.DealAPI, 200},
		{"without Redis, from another replica", e2e.SecondAPI, 300},
	} {
		if strings.HasPrefix(run.what, "without") && !redisDown {
			redisDown = true
			if err := stack.Redis().Stop(); err != nil {
				t.Fatal(err)
			}
		}
		idle := residentMB(t, stack.PID(run.at))
		var finished sync.WaitGroup
		c.wait(t, stack, run.at, "OPEN", &finished)
		looks := func() float64 { return e2e.Sum(e2e.Scrape(t, stack, run.at)["fairpact_waiting_looks_total"]) }
		before, began := looks(), time.Now()
		e2e.Pause(t.Context(), 10*time.Second)
		statements := (looks() - before) / time.Since(began).Seconds()
		busy := residentMB(t, stack.PID(run.at))
		took := c.play(t, run.first)
		t.Logf("%s: %d calls wait: %d MB resident, before %d; %.2f statements/s; answered after p50 %s, p99 %s", run.what, waiters, busy, idle, statements,
			took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond))
		finished.Wait()
		c.create(t, run.first, events)
	}
	var finished sync.WaitGroup
	c.wait(t, stack, localstack.DealAPI, "OPEN", &finished)
	began := time.Now()
	stack.Signal(localstack.DealAPI, syscall.SIGTERM)
	finished.Wait()
	t.Logf("a drain answered %d calls in %s", waiters, time.Since(began).Round(time.Millisecond))
	<-stack.Ended(localstack.DealAPI)
	if err := stack.Err(localstack.DealAPI); err != nil {
		t.Errorf("the drained replica ended with %v", err)
	}
}
