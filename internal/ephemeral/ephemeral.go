// Package ephemeral is what may be lost at any moment: short locks and copies
// kept in Redis to make things cheap. Nothing here is needed for a right
// answer. With Redis empty, slow or gone every call returns at once and the
// caller goes on by the database alone.
package ephemeral

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

const (
	commandTimeout = 250 * time.Millisecond
	pause          = time.Second // without Redis, after it failed
	maxCopy        = 64 << 10    // bytes
	maxLocal       = 1 << 14     // names that are counted without Redis
)

// Redis is a client that never makes its caller wait for a Redis that is down.
// It is safe for concurrent use.
type Redis struct {
	client  redis.UniversalClient
	limiter *redis_rate.Limiter
	local   *lru.Cache[string, *rate.Limiter] // of the names that were counted without Redis
	timeout time.Duration                     // of one command
	// downUntil is the time (unix nanoseconds) before which Redis is not asked.
	downUntil atomic.Int64

	name          string      // of this process among those that announce
	announcements chan string // deals
	stop          context.CancelFunc
	loops         sync.WaitGroup
}

// Open makes a client of a URL; see connect for its forms. It fails on a malformed
// URL only; a Redis that is out of reach is not an error.
func Open(url string) (*Redis, error) {
	client, timeout, err := connect(url)
	if err != nil {
		return nil, errors.New("REDIS_URL is not a redis:// or rediss:// URL of one server, of Sentinels (?master_name=NAME) or of a cluster (?cluster=true) (its text is not shown, it may hold a password)")
	}
	local, err := lru.New[string, *rate.Limiter](maxLocal)
	if err != nil {
		return nil, err
	}
	r := &Redis{
		client: client, limiter: redis_rate.NewLimiter(client), local: local, timeout: timeout,
		name: rand.Text(), announcements: make(chan string, maxChanges),
	}
	var running context.Context
	running, r.stop = context.WithCancel(context.Background())
	r.loops.Go(func() { r.watch(running) })
	r.loops.Go(func() { r.announce(running) })
	return r, nil
}

// LogTo gives the logger what go-redis has to say: of connections that cannot be
// made, never of keys or values.
func LogTo(logger *slog.Logger) { redis.SetLogger(messages{logger}) }

type messages struct{ logger *slog.Logger }

func (m messages) Printf(ctx context.Context, format string, args ...any) {
	m.logger.WarnContext(ctx, "Redis client failed", "err", fmt.Sprintf(format, args...))
}

// Close ends all connections.
func (r *Redis) Close() error {
	r.stop()
	r.loops.Wait()
	return r.client.Close()
}

// Ping reports whether Redis answers, for monitoring.
func (r *Redis) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.client.Ping(ctx).Err()
}

// up reports whether Redis is worth asking now.
func (r *Redis) up() bool { return time.Now().UnixNano() >= r.downUntil.Load() }

// noteFailure stops asking for a moment after a failure of Redis itself, and
// reports whether err was one. A caller that gave up says nothing about Redis.
func (r *Redis) noteFailure(ctx context.Context, err error) bool {
	if err == nil || errors.Is(err, redis.Nil) {
		return false
	}
	if ctx.Err() == nil {
		failures.Inc()
		r.downUntil.Store(time.Now().Add(pause).UnixNano())
	}
	return true
}

var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// Lock asks for a lock of at most ttl. free is false only where somebody else
// certainly holds it; without Redis it is true, as the lock saves work and
// guards nothing. unlock MUST be called where free is true.
func (r *Redis) Lock(ctx context.Context, name string, ttl time.Duration) (unlock func(), free bool) {
	if !r.up() {
		return func() {}, true
	}
	owner := rand.Text()
	err := r.client.SetArgs(ctx, key("lock", name), owner, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return nil, false
	}
	if r.noteFailure(ctx, err) {
		return func() {}, true
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
		defer cancel()
		r.noteFailure(ctx, release.Run(ctx, r.client, []string{key("lock", name)}, owner).Err())
	}, true
}

// Put keeps a copy of at most 64 KiB for at most ttl, if Redis is there.
func (r *Redis) Put(ctx context.Context, name string, value []byte, ttl time.Duration) {
	if r.up() && len(value) <= maxCopy {
		r.noteFailure(ctx, r.client.Set(ctx, key("copy", name), value, ttl).Err())
	}
}

// Get finds a copy.
func (r *Redis) Get(ctx context.Context, name string) (value []byte, found bool) {
	if !r.up() {
		return nil, false
	}
	value, err := r.client.Get(ctx, key("copy", name)).Bytes()
	r.noteFailure(ctx, err)
	return value, err == nil
}

func key(kind, name string) string { return fmt.Sprintf("fairpact:%s:%s", kind, name) }

// Allow counts n uses of name against a limit a minute (GCRA), which all
// processes share. Without Redis each process counts by itself.
func (r *Redis) Allow(ctx context.Context, name string, perMinute, n int) (retryAfterSeconds int, ok bool) {
	n = min(n, perMinute)
	if r.up() {
		result, err := r.limiter.AllowN(ctx, name, redis_rate.PerMinute(perMinute), n)
		switch {
		case err == nil && result.Allowed > 0:
			return 0, true
		case err == nil:
			return int(result.RetryAfter/time.Second) + 1, false
		}
		r.noteFailure(ctx, err)
	}
	local, ok := r.local.Get(name)
	if !ok {
		local = rate.NewLimiter(rate.Limit(perMinute)/60, perMinute)
		if before, known, _ := r.local.PeekOrAdd(name, local); known {
			local = before
		}
	}
	use := local.ReserveN(time.Now(), n)
	wait := use.Delay()
	if wait == 0 {
		return 0, true
	}
	use.Cancel()
	return int(wait/time.Second) + 1, false
}
