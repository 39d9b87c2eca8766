package redis

import (
	"context"
	"crypto/rand"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
)

func checkWithoutRedis(t *testing.T, r *Redis) {
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
		name := rand.Text()
		for i := range 3 {
			if _, ok := r.Allow(ctx, name, 2, time.Minute, 1); ok != (i < 2) {
				t.Fatalf("without Redis, use %d of 2 a minute: allowed %v, want the opposite", i+1, ok)
			}
		}
		r.downUntil.Store(0)
	}
	if r.Ping(ctx) == nil {
		t.Fatal("without Redis it answers a ping")
	}
	if ctx.Err() != nil {
		t.Fatal("the calls took as long as their caller would let them")
	}
}

// waitUntilBack waits until the client uses Redis again, that is, until a second Lock of the
// same name fails. Without Redis every Lock succeeds.
func waitUntilBack(t *testing.T, r *Redis) {
	t.Helper()
	ctx := bounded(t)
	eventually(t, "locks hold again", func() bool {
		unlock, free := r.Lock(ctx, "afterwards", time.Hour)
		if !free {
			return false
		}
		defer unlock()
		return held(ctx, r, "afterwards")
	})
	eventually(t, "Redis answers a ping", func() bool { return r.Ping(ctx) == nil })
}

func TestRedisHangs(t *testing.T) {
	server := servertest.StartRedis(t)
	r := open(t, server.URL())
	ctx := bounded(t)
	if _, free := r.Lock(ctx, "deal", time.Hour); !free {
		t.Fatal("the first lock is not free")
	}
	thaw := freeze(t, server)
	checkWithoutRedis(t, r)
	thaw()
	waitUntilBack(t, r)
	eventually(t, "the lock from before is held: Redis lost no data", func() bool { return held(ctx, r, "deal") })
}

func TestRedisRestartsEmpty(t *testing.T) {
	server := servertest.StartRedis(t)
	r := open(t, server.URL())
	ctx := bounded(t)
	unlock, free := r.Lock(ctx, "deal", time.Hour)
	if !free {
		t.Fatal("the first lock is not free")
	}
	server.Kill()
	unlock() // must not hang while Redis is down
	checkWithoutRedis(t, r)
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	waitUntilBack(t, r)
	if held(ctx, r, "deal") {
		t.Error("an empty Redis holds a lock, want it free")
	}
}

func TestUnusableRedis(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	_, at, _ := strings.Cut(servertest.Redis(t), "@")
	for what, url := range map[string]string{
		"nothing listens": "redis://:x@127.0.0.1:1/0",
		"no answer":       "redis://" + mute.Addr().String() + "/0",
		"wrong password":  "redis://:wrong@" + at,
		"no password":     "redis://" + at,
	} {
		t.Run(what, func(t *testing.T) { checkWithoutRedis(t, open(t, url)) })
	}
}

func TestRedisIsNotAskedRightAfterAFailure(t *testing.T) {
	r := open(t, "redis://127.0.0.1:1/0")
	_, _ = r.Lock(t.Context(), "a", time.Hour)
	if r.downUntil.Load() == 0 {
		t.Fatal("a failure is not noted")
	}
	r.downUntil.Store(time.Now().Add(time.Hour).UnixNano())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, free := r.Lock(gone, "deal", time.Hour); !free {
		t.Error("a lock is held while Redis is not asked")
	}
	before := r.downUntil.Load()
	_, _ = r.Lock(t.Context(), "a", time.Hour)
	_, _ = r.Allow(t.Context(), "a", 1, time.Minute, 1)
	if r.downUntil.Load() != before {
		t.Error("Redis is asked during the pause")
	}
}

func freeze(t *testing.T, server *localservers.Redis) (thaw func()) {
	t.Helper()
	signal := func(sig syscall.Signal) {
		if err := syscall.Kill(server.PID(), sig); err != nil {
			t.Errorf("send the signal %v to Redis: %v", sig, err)
		}
	}
	signal(syscall.SIGSTOP)
	thaw = sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}

// checkShared checks that two clients of one Redis share locks and limits. The lock and limit
// names are random, so that their keys spread over all nodes of a cluster.
func checkShared(t *testing.T, url string) {
	t.Helper()
	url += "&" + strings.TrimPrefix(servertest.PatientRedis, "?")
	replicas := []*Redis{open(t, url), open(t, url)}
	ctx := bounded(t)
	for range 20 {
		name := rand.Text()
		unlock, free := replicas[0].Lock(ctx, name, time.Hour)
		if !free || !held(ctx, replicas[1], name) {
			t.Fatal("a lock is not free, or does not exclude the other client")
		}
		unlock()
		if held(ctx, replicas[1], name) {
			t.Fatal("an unlocked lock is held")
		}
		for i := range 3 {
			if _, ok := replicas[i%2].Allow(ctx, name, 2, time.Minute, 1); ok != (i < 2) {
				t.Fatalf("use %d of 2 a minute: allowed %v, want the opposite", i+1, ok)
			}
		}
	}
	for _, r := range replicas {
		if r.downUntil.Load() != 0 {
			t.Error("a Redis command failed, want none")
		}
	}
}

func TestOneServer(t *testing.T) { checkShared(t, servertest.Redis(t)+"?") }

func TestCluster(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		url, servers := servertest.RedisCluster(t, nodes)
		checkShared(t, url)
		r := open(t, url)
		if _, cluster := r.client.(*redis.ClusterClient); !cluster {
			t.Errorf("the client is a %T, want a cluster client", r.client)
		}
		for _, s := range servers {
			s.Kill()
		}
		checkWithoutRedis(t, r)
	}
}

func TestSentinel(t *testing.T) {
	url, primary := servertest.RedisSentinel(t)
	checkShared(t, url)
	r := open(t, url)
	_, _ = r.Lock(bounded(t), "before", time.Hour)
	primary.Kill()
	checkWithoutRedis(t, r)
	waitUntilBack(t, r)
}
