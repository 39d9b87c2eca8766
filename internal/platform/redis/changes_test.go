package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
)

type listener struct {
	mu        sync.Mutex
	ids       []string
	connected bool
}

func listen(t *testing.T, r *Redis) *listener {
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
			l.connected = now
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

func TestAnnouncementsReachTheOthers(t *testing.T) {
	url := servertest.Redis(t)
	one, other, third := openPatient(t, url), openPatient(t, url), openPatient(t, url)
	self, first, second := listen(t, one), listen(t, other), listen(t, third)
	for _, l := range []*listener{self, first, second} {
		eventually(t, "all listen", l.is(true))
	}
	const many = 3*maxAnnounced + 1
	for i := range many {
		one.Announce(fmt.Sprint("d_", i))
	}
	other.Announce("d_other")
	for i := range many {
		for _, l := range []*listener{first, second} {
			eventually(t, "each deal is heard", l.heard(fmt.Sprint("d_", i)))
		}
	}
	eventually(t, "the other's is heard", self.heard("d_other"))
	if self.heard("d_0")() {
		t.Error("a process hears its own announcement, want only those of others")
	}
}

func TestListenerReconnects(t *testing.T) {
	server := servertest.StartRedis(t)
	speaker, l := openPatient(t, server.URL()), listen(t, openPatient(t, server.URL()))
	eventually(t, "the listener is connected", l.is(true))
	server.Kill()
	eventually(t, "the listener notices that Redis is gone", l.is(false))
	if err := server.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the listener is connected again", l.is(true))
	eventually(t, "it hears again", func() bool {
		speaker.Announce("d_1") // on each try, because after a failure the speaker drops announcements for a while
		return l.heard("d_1")()
	})
	thaw := freeze(t, server)
	eventually(t, "it notices that Redis hangs", l.is(false))
	thaw()
	eventually(t, "it is back again", l.is(true))
}

func TestAnnounceDoesNotBlock(t *testing.T) {
	server := servertest.StartRedis(t)
	freeze(t, server)
	for what, r := range map[string]*Redis{"none": open(t, "redis://127.0.0.1:1/0"), "one that hangs": openPatient(t, server.URL())} {
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
			t.Fatalf("Redis is in the state %q: Announce blocks, want it to return", what)
		}
	}
}
