// Package keywatch lets the processes of a deployment see each other's key sets.
//
// Each answer of log-server lists the keys that may already sign. A process that does not
// accept one of these keys has missed a rotation. It cannot verify what that key signed. So
// it treats the log as unavailable, and is not ready until it gets the new key set.
//
// Each process also puts the digest of its key set into its application_name in Postgres,
// where fairpactctl keys reads it. Neither the answers nor these names make a key trusted.
package keywatch

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

const header = "Fairpact-Signing-Keys"

// Tell adds a header to each answer of next. The header lists the keys that may already
// sign.
func Tell(keys *signing.KeySet, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(header, strings.Join(keys.Due(), ","))
		next.ServeHTTP(w, r)
	})
}

const (
	poll   = 5 * time.Second
	memory = 3 * poll // how long Ready reports a missing key; good answers do not end it, because another log-server may send them
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

// Check inspects an answer of the log; set it as the Check of a translog.Client. It returns
// an error if this process does not accept a key of the log. If the status is not 200, it
// also returns an error if the log does not have the key with which this process signs now.
func (w *Watch) Check(r *http.Response) error {
	named := r.Header.Get(header)
	if named == "" { // log-server is of an earlier release
		return nil
	}
	theirs := strings.Split(named, ",")
	for _, label := range theirs {
		if !w.keys.Accepts(label) {
			err := fmt.Errorf("log-server signs with %.80q, which is not accepted here: roll the key set of log-server out to this process", label)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.found, w.at = err, time.Now()
			return err
		}
	}
	if mine := w.keys.Due(); r.StatusCode != http.StatusOK && !slices.Contains(theirs, mine[len(mine)-1]) {
		return fmt.Errorf("log-server does not know of %s, which signs now: roll the key set of this process out to it", mine[len(mine)-1])
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

// Run calls ask every 5 s until ctx ends. ask must send a request to the log, so that an
// idle process also learns of new keys.
func (w *Watch) Run(ctx context.Context, ask func(context.Context) error, logger *slog.Logger) {
	lacking := false
	for {
		_ = ask(ctx) // the error does not matter: Check inspects every answer
		if err := w.Ready(); err != nil && !lacking {
			logger.ErrorContext(ctx, "this process lacks a key, not ready", "err", err)
		}
		lacking = w.Ready() != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
}

// maxName is the longest application_name of Postgres, in bytes.
const maxName = 63

const namePrefix = "fairpact/"

// noSecrets replaces the digest if a process has no server secrets.
const noSecrets = "-"

// Name returns the application_name of a process: the binary, the digests of the key set
// and the server secrets, and the end of HOST.PID. secrets is the second digest and may be
// empty. If HOST.PID is too long, Name cuts its start, because the end of a host name
// differs between pods.
func Name(binary string, keys *signing.KeySet, secrets string) string {
	host, _ := os.Hostname()
	name := namePrefix + binary + "/" + keys.Digest() + "/" + cmp.Or(secrets, noSecrets) + "/"
	self := fmt.Sprintf("%s.%d", host, os.Getpid())
	return name + self[max(0, len(self)-(maxName-len(name))):]
}

// Process is a parsed application_name. Secrets is the digest of the server secrets,
// or empty if the process has none or is of an earlier release.
type Process struct{ Binary, KeySet, Secrets, Host string }

// Parse reads an application_name. ok is false if the name is not of the form that Name
// returns.
func Parse(name string) (p Process, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(name, namePrefix), "/", 3)
	if !strings.HasPrefix(name, namePrefix) || len(parts) != 3 {
		return p, false
	}
	p = Process{Binary: parts[0], KeySet: parts[1], Host: parts[2]}
	if secrets, host, ok := strings.Cut(p.Host, "/"); ok {
		p.Secrets, p.Host = strings.TrimPrefix(secrets, noSecrets), host
	}
	return p, true
}
