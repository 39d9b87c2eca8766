package ephemeral

import (
	"context"
	"crypto/rand"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

// goesOn holds every call to the promise of a Redis that is not there: it
// returns, long before its caller's context ends, and lets the caller go on.
func goesOn(t *testing.T, r *Redis) {
	t.Helper()
	ctx := bounded(t)
	for range 3 {
		unlock, free := r.Lock(ctx, "deal", time.Hour)
		if !free {
			t.Fatal("without Redis a lock is held")
		}
		if _, free := r.Lock(ctx, "deal", time.Hour); !free {
			t.Fatal("without Redis a lock is held by the first")
		}
		unlock()
		r.Put(ctx, "a", []byte("x"), time.Hour)
		if _, found := r.Get(ctx, "a"); found {
			t.Fatal("without Redis a copy is found")
		}
		name := rand.Text()
		for i := range 3 {
			if _, ok := r.Allow(ctx, name, 2, 1); ok != (i < 2) {
				t.Fatalf("without Redis, use %d of 2 a minute: allowed %v", i+1, ok)
			}
		}
		// What a caller meets once the pause is over and Redis is still away.
		r.downUntil.Store(0)
	}
	if r.Ping(ctx) == nil {
		t.Fatal("without Redis it answers a ping")
	}
	if ctx.Err() != nil {
		t.Fatal("the calls took as long as their caller would let them")
	}
}

// comesBack waits until Redis is asked again: only then is a lock held.
func comesBack(t *testing.T, r *Redis) {
	t.Helper()
	ctx := bounded(t)
	until(t, "locks hold again", func() bool {
		unlock, free := r.Lock(ctx, "afterwards", time.Hour)
		if !free {
			return false
		}
		defer unlock()
		return held(ctx, r, "afterwards")
	})
	until(t, "Redis answers a ping", func() bool { return r.Ping(ctx) == nil })
}

func TestRedisHangs(t *testing.T) {
	server := servertest.StartRedis(t)
	r := hasty(t, server.URL())
	ctx := bounded(t)
	if _, free := r.Lock(ctx, "deal", time.Hour); !free {
		t.Fatal("the first lock is not free")
	}
	signal(t, server, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, server, syscall.SIGCONT) })
	goesOn(t, r)
	signal(t, server, syscall.SIGCONT)
	comesBack(t, r)
	until(t, "the lock from before is held, as Redis only slept", func() bool { return held(ctx, r, "deal") })
}

func TestRedisHungFromTheStart(t *testing.T) {
	server := servertest.StartRedis(t)
	signal(t, server, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, server, syscall.SIGCONT) })
	r := hasty(t, server.URL())
	goesOn(t, r)
	signal(t, server, syscall.SIGCONT)
	comesBack(t, r)
}

func TestRedisDiesAndComesBackEmpty(t *testing.T) {
	server := servertest.StartRedis(t)
	r := hasty(t, server.URL())
	ctx := bounded(t)
	unlock, free := r.Lock(ctx, "deal", time.Hour)
	if !free {
		t.Fatal("the first lock is not free")
	}
	server.Kill()
	unlock() // neither hangs nor fails
	goesOn(t, r)
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	comesBack(t, r)
	if held(ctx, r, "deal") {
		t.Error("an empty Redis holds a lock")
	}
}

// A Redis that takes connections and says nothing, and one that refuses this
// client, are as good as none.
func TestNoRedisAtAll(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	_, at, _ := strings.Cut(servertest.Redis(t), "@")
	for what, url := range map[string]string{
		"nobody listens": "redis://:x@127.0.0.1:1/0",
		"it is mute":     "redis://" + mute.Addr().String() + "/0",
		"wrong password": "redis://:wrong@" + at,
		"no password":    "redis://" + at,
	} {
		t.Run(what, func(t *testing.T) { goesOn(t, hasty(t, url)) })
	}
}

// After a failure Redis is left alone for a moment: a crowd of callers does not
// wait one by one.
func TestRedisIsNotAskedRightAfterAFailure(t *testing.T) {
	r := hasty(t, "redis://127.0.0.1:1/0")
	r.Put(t.Context(), "a", nil, time.Hour)
	if r.downUntil.Load() == 0 {
		t.Fatal("a failure is not noted")
	}
	r.downUntil.Store(time.Now().Add(time.Hour).UnixNano())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	// A closed client would answer with an error if it were asked.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, free := r.Lock(gone, "deal", time.Hour); !free {
		t.Error("a lock is held while Redis is not asked")
	}
	before := r.downUntil.Load()
	r.Put(t.Context(), "a", nil, time.Hour)
	_, _ = r.Get(t.Context(), "a")
	_, _ = r.Allow(t.Context(), "a", 1, 1)
	if r.downUntil.Load() != before {
		t.Error("Redis is asked during the pause")
	}
}

func signal(t *testing.T, server *localservers.Redis, sig syscall.Signal) {
	t.Helper()
	select {
	case <-server.Done():
		return
	default:
	}
	if err := syscall.Kill(server.PID(), sig); err != nil {
		t.Errorf("%v: %v", sig, err)
	}
}
