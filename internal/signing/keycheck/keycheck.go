// Package keycheck lets the processes of a deployment see each other's key sets.
//
// Each answer of log-server lists the keys that may already sign. A process that does not
// accept a listed key has missed a rotation, and cannot verify signatures by this key.
// The process treats the log as unavailable, and is not ready until it gets the new key set. The
// list makes no key trusted.
package keycheck

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

const header = "Fairpact-Signing-Keys"

// Tell adds a header to each answer of `next` that lists the keys that may already sign.
func Tell(keys *signing.KeySet, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(header, strings.Join(keys.Due(), ","))
		next.ServeHTTP(w, r)
	})
}

const (
	poll = 5 * time.Second

	// memory is how long Ready reports a missing key. An answer that lists only accepted keys does
	// not clear the report: a log-server without the new key set may have sent it.
	memory = 3 * poll
)

// Watch compares the keys of log-servers with those of this process. It is safe for
// concurrent use.
type Watch struct {
	keys *signing.KeySet

	mu    sync.Mutex
	found error
	at    time.Time
}

// New returns a Watch for a process with these keys.
func New(keys *signing.KeySet) *Watch { return &Watch{keys: keys} }

// Check inspects an answer of log-server, as the field Check of a translog.Client. It returns an
// error if log-server lists a key that this process does not accept. If the status is not 200, it
// also does if the list lacks the key with which this process signs: that may be why.
func (w *Watch) Check(r *http.Response) error {
	named := r.Header.Get(header)
	if named == "" { // the answer is not from log-server
		return nil
	}
	theirs := strings.Split(named, ",")
	for _, label := range theirs {
		if !w.keys.Accepts(label) {
			err := fmt.Errorf("log-server lists the key %.80q, which this process does not accept: roll out the key set of log-server to this process", label)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.found, w.at = err, time.Now()
			return err
		}
	}
	if mine := w.keys.Due(); r.StatusCode != http.StatusOK && !slices.Contains(theirs, mine[len(mine)-1]) {
		return fmt.Errorf("log-server does not list %s, the key with which this process signs: roll out the key set of this process to log-server", mine[len(mine)-1])
	}
	return nil
}

// Ready returns an error if Check found in the last 15 s that this process lacks a key
// of a log-server.
func (w *Watch) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found != nil && time.Since(w.at) < memory {
		return w.found
	}
	return nil
}

// Run calls `ask` every 5 s until ctx ends. `ask` must send a request to the log, so that an idle
// process also learns of new keys.
func (w *Watch) Run(ctx context.Context, ask func(context.Context) error, logger *slog.Logger) {
	lacking := false
	for {
		_ = ask(ctx) // the error is not needed: Ready returns what Check found
		if err := w.Ready(); err != nil && !lacking {
			logger.ErrorContext(ctx, "not ready: this process lacks a key of log-server", "err", err)
		}
		lacking = w.Ready() != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
}
