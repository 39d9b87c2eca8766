// Package redis keeps best-effort locks, rate limits and announcements in Redis.
// While Redis is down, callers continue: every lock is free, each process counts its own
// rate limits, and announcements are lost. Connecting, sending and reading each have a
// short timeout.
package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

const (
	commandTimeout = 250 * time.Millisecond
	// pause is how long after a failure Lock, Allow and publish skip Redis, and how long Listen
	// waits before it subscribes again.
	pause    = time.Second
	maxLocal = 1 << 14 // maximum number of rate limiters that a process keeps for use while Redis is down
)

// Redis is a client whose commands time out if the server is down. It is safe for
// concurrent use.
type Redis struct {
	client    redis.UniversalClient
	limiter   *redis_rate.Limiter
	local     *lru.Cache[string, *rate.Limiter] // by the name of the limit; used while Redis is down
	timeout   time.Duration                     // of one command
	downUntil atomic.Int64                      // unix time in nanoseconds until which Lock, Allow and publish skip Redis

	name          string
	announcements chan string
	stop          context.CancelFunc
	loops         sync.WaitGroup
}

// Open returns a client for the redis:// or rediss:// URL of one server, of Sentinels or of a
// cluster (forms: see connect). Open fails only if the URL is malformed, not if Redis is down.
func Open(url string) (*Redis, error) {
	client, timeout, err := connect(url)
	if err != nil {
		return nil, errors.New("REDIS_URL is malformed (not shown, because it may contain a password): set the redis:// or rediss:// URL of one server, of Sentinels (?master_name=NAME) or of a cluster (?cluster=true)")
	}
	client.AddHook(waits{})
	local, _ := lru.New[string, *rate.Limiter](maxLocal) // fails only for a size below 1
	r := &Redis{
		client: client, limiter: redis_rate.NewLimiter(client), local: local, timeout: timeout,
		name: rand.Text(), announcements: make(chan string, maxChanges),
	}
	var running context.Context
	running, r.stop = context.WithCancel(context.Background())
	r.loops.Go(func() { telemetry.WatchServer(running, "Redis", reachable, r.Ping) })
	r.loops.Go(func() { r.announce(running) })
	return r, nil
}

// waits gives back the turn at the CPU of a call that waits for Redis.
type waits struct{}

// DialHook implements redis.Hook.
func (waits) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (waits) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		budget.From(ctx).Rest()
		return next(ctx, command)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (waits) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		budget.From(ctx).Rest()
		return next(ctx, commands)
	}
}

// LogTo makes go-redis log to the logger. The messages contain no Redis keys or values.
func LogTo(logger *slog.Logger) { redis.SetLogger(messages{logger}) }

type messages struct{ logger *slog.Logger }

func (m messages) Printf(ctx context.Context, format string, args ...any) {
	m.logger.WarnContext(ctx, "message from the Redis client", "err", fmt.Sprintf(format, args...))
}

// Close sends the queued announcements and ends all connections.
func (r *Redis) Close() error {
	r.stop()
	r.loops.Wait()
	return r.client.Close()
}

// Ping returns an error if Redis does not answer.
func (r *Redis) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.client.Ping(ctx).Err()
}

func (r *Redis) up() bool { return time.Now().UnixNano() >= r.downUntil.Load() }

// noteFailure reports whether err is a failure, and then sets downUntil, unless ctx has ended: the
// caller gave up, and Redis may be up.
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

// Lock takes a lock for at most ttl. If free is true, the caller MUST call unlock. While Redis is
// down, every lock is free: locks only prevent repeated work.
func (r *Redis) Lock(ctx context.Context, name string, ttl time.Duration) (unlock func(), free bool) {
	if !r.up() {
		return func() {}, true
	}
	owner := rand.Text()
	key := "fairpact:lock:" + name
	err := r.client.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return nil, false
	}
	if r.noteFailure(ctx, err) {
		return func() {}, true
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
		defer cancel()
		r.noteFailure(ctx, release.Run(ctx, r.client, []string{key}, owner).Err())
	}, true
}

// Allow counts n uses against the limit `name`, which permits `most` uses in the period `per`
// (GCRA). An n above `most` counts as `most`. All processes share the limit in Redis.
// While Redis is down, each process counts alone. If ok is false, the caller may try again
// after retryAfterSeconds.
func (r *Redis) Allow(ctx context.Context, name string, most int, per time.Duration, n int) (retryAfterSeconds int, ok bool) {
	n = min(n, most)
	if r.up() {
		result, err := r.limiter.AllowN(ctx, name, redis_rate.Limit{Rate: most, Burst: most, Period: per}, n)
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
		local = rate.NewLimiter(rate.Limit(float64(most)/per.Seconds()), most)
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

// connect returns the client for a URL, and the timeout of one command. A URL has one of
// these forms:
//
//	redis://[USER:PASSWORD@]HOST:PORT/DB                            one server
//	redis://[USER:PASSWORD@]HOST:PORT/DB?master_name=NAME&addr=…    Sentinels
//	redis://[USER:PASSWORD@]HOST:PORT?cluster=true&addr=…           a cluster
//
// rediss:// is the same over TLS. addr=HOST:PORT names another Sentinel or node and
// may be repeated. In a URL of Sentinels, USER and PASSWORD are for the Sentinels, and the
// parameters username and password are for Redis. The parameters dial_timeout,
// read_timeout, write_timeout and pool_timeout replace commandTimeout.
func connect(text string) (client redis.UniversalClient, timeout time.Duration, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, 0, err
	}
	// One try, within the time of the command.
	once := func(retries, dials *int, endsWithContext *bool, timeouts ...*time.Duration) {
		*retries, *dials, *endsWithContext = -1, 1, true
		for _, t := range timeouts {
			*t = cmp.Or(*t, commandTimeout)
		}
	}
	query := u.Query()
	switch cluster := query.Get("cluster") == "true"; {
	case cluster && query.Has("master_name"):
		return nil, 0, errors.New("cluster=true and master_name exclude each other: give one")
	case cluster:
		query.Del("cluster") // go-redis rejects unknown parameters
		u.RawQuery = query.Encode()
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, 0, err
		}
		once(&o.MaxRetries, &o.DialerRetries, &o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		return redis.NewClusterClient(o), o.ReadTimeout, nil
	case query.Has("master_name"):
		o, err := redis.ParseFailoverURL(text)
		if err != nil {
			return nil, 0, err
		}
		once(&o.MaxRetries, &o.DialerRetries, &o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		return redis.NewFailoverClient(o), o.ReadTimeout, nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, 0, err
	}
	once(&o.MaxRetries, &o.DialerRetries, &o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return redis.NewClient(o), o.ReadTimeout, nil
}

var (
	reachable = telemetry.NewGauge("fairpact_redis_up", "1 while Redis answers, checked every 5 s.")
	failures  = telemetry.NewCounter("fairpact_redis_errors_total",
		"Redis commands that failed; no API call fails because of them.")
	dropped = telemetry.NewCounter("fairpact_announcements_dropped_total",
		"Deal changes that this process failed to announce to the other processes. Waiting calls in those processes see the change some seconds late.")
)
