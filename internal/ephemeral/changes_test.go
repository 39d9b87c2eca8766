package ephemeral

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

// listener is one that listens, and what it heard.
type listener struct {
	mu        sync.Mutex
	ids       []string
	connected bool
	times     int // that it was connected
}

func listens(t *testing.T, r *Redis) *listener {
	t.Helper()
	l := &listener{}
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() {
		r.Listen(ctx, func(ids ...string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ids = append(l.ids, ids...)
		}, func(now bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.connected = now; now {
				l.times++
			}
		})
	})
	t.Cleanup(func() { cancel(); loop.Wait() })
	return l
}

func (l *listener) is(connected bool) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.connected == connected
	}
}

func (l *listener) heard(id string) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Contains(l.ids, id)
	}
}

// What one process announces all others hear, and it does not hear itself.
func TestOthersHearWhatIsAnnounced(t *testing.T) {
	url := servertest.Redis(t)
	one, other, third := patient(t, url), patient(t, url), patient(t, url)
	self, first, second := listens(t, one), listens(t, other), listens(t, third)
	for _, l := range []*listener{self, first, second} {
		until(t, "all listen", l.is(true))
	}
	const many = 3*maxAnnounced + 1
	for i := range many {
		one.Announce(fmt.Sprint("d_", i))
	}
	other.Announce("d_other")
	for i := range many {
		for _, l := range []*listener{first, second} {
			until(t, "each deal is heard", l.heard(fmt.Sprint("d_", i)))
		}
	}
	until(t, "the other's is heard", self.heard("d_other"))
	if self.heard("d_0")() {
		t.Error("a process hears itself")
	}
}

// A listener notices that Redis is gone or hangs, and comes back.
func TestListenerComesBack(t *testing.T) {
	server := servertest.StartRedis(t)
	speaker, l := patient(t, server.URL()), listens(t, patient(t, server.URL()))
	until(t, "it listens", l.is(true))
	server.Kill()
	until(t, "it notices that Redis is gone", l.is(false))
	if err := server.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "it is back", l.is(true))
	until(t, "it hears again", func() bool {
		speaker.Announce("d_1") // dropped while the speaker leaves Redis alone
		return l.heard("d_1")()
	})
	signal(t, server, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, server, syscall.SIGCONT) })
	until(t, "it notices that Redis hangs", l.is(false))
	signal(t, server, syscall.SIGCONT)
	until(t, "it is back again", l.is(true))
}

// Whoever announces does not wait: without Redis, and with more than fits.
func TestAnnounceDoesNotBlock(t *testing.T) {
	server := servertest.StartRedis(t)
	signal(t, server, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, server, syscall.SIGCONT) })
	for what, r := range map[string]*Redis{"none": hasty(t, "redis://127.0.0.1:1/0"), "one that hangs": patient(t, server.URL())} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 4 * maxChanges {
				r.Announce("d_1")
			}
		}()
		select {
		case <-done:
		case <-bounded(t).Done():
			t.Fatalf("Redis: %s: Announce blocks", what)
		}
	}
}
