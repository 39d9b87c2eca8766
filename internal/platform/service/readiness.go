package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

const (
	checkEvery   = 5 * time.Second
	checkTimeout = 2 * time.Second
)

var readyGauge = telemetry.NewGaugeVec("fairpact_ready",
	"1 if this process is ready, otherwise 0, checked every 5 s or more often. reason says why not: schema, secret, keys, clock, log, worker, database, stopping or other.", "binary", "reason")

// Because gives an error of Health.Ready the reason that fairpact_ready shows. It returns nil for a nil error.
func Because(reason string, err error) error {
	if err == nil {
		return nil
	}
	return because{err, reason}
}

type because struct {
	error
	reason string
}

func (b because) Unwrap() error { return b.error }

// readiness keeps whether a process is ready, shows it as a metric and logs each change. In an outage of the
// database the last check before it counts: the outage affects all replicas and a restart does not help, so the
// replicas stay in the Kubernetes Service and answer 503 to calls that need the database.
type readiness struct {
	logger *slog.Logger

	mu            sync.Mutex
	begun, newest int  // checks that began; the number of the newest one whose result counts
	passed        bool // whether the last check in which the database answered was successful
	stopping      bool
	shown         *string // the reason of the metric, empty if ready; nil before the first check
}

// watch checks until ctx ends, because nothing asks /readyz outside a cluster.
func (r *readiness) watch(ctx context.Context, check func(context.Context) error) {
	for {
		pause := checkEvery
		if ready, _ := r.check(ctx, check); !ready {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *readiness) check(ctx context.Context, check func(context.Context) error) (ready bool, err error) {
	r.mu.Lock()
	r.begun++
	number := r.begun
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = check(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	away := errors.Is(err, database.ErrNoAnswer)
	ready = err == nil || away && r.passed
	if number < r.newest || r.stopping || errors.Is(ctx.Err(), context.Canceled) {
		return ready, err // a later check has ended before, or the caller gave up
	}
	r.newest = number
	if !away {
		r.passed = err == nil
	}
	r.show(ready, err)
	return ready, err
}

// show requires r.mu.
func (r *readiness) show(ready bool, err error) {
	reason := "other"
	cause, named := errors.AsType[because](err)
	switch {
	case ready:
		reason = ""
	case errors.Is(err, database.ErrNoAnswer):
		reason = "database"
	case errors.Is(err, database.ErrSchema):
		reason = "schema"
	case r.stopping:
		reason = "stopping"
	case named:
		reason = cause.reason
	}
	if r.shown != nil && *r.shown == reason {
		return
	}
	value, level := 0.0, slog.LevelWarn
	if ready {
		value = 1
	}
	if r.shown == nil { // the process starts
		level = slog.LevelInfo
	}
	readyGauge.WithLabelValues(binary, reason).Set(value)
	if r.shown != nil {
		readyGauge.DeleteLabelValues(binary, *r.shown)
	}
	r.shown = &reason
	switch {
	case ready:
		r.logger.Info("ready")
	case err != nil:
		r.logger.Log(context.Background(), level, "not ready", "reason", reason, "err", err)
	}
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	r.show(false, nil)
}
