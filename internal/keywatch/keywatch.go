// Package keywatch lets the processes of a deployment see each other's key sets.
//
// log-server names in each answer the keys whose time to sign has come. A process
// that does not accept one of them was left out of a rotation: it cannot judge
// what that key signed, takes the log for out of reach and is not ready, until it
// gets the document. Each process names its key set to Postgres as well, where
// fairpactctl keys looks who runs. None of this makes anybody trust a key.
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

// Tell names the keys in each answer of a handler.
func Tell(keys *signing.KeySet, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(header, strings.Join(keys.Due(), ","))
		next.ServeHTTP(w, r)
	})
}

const (
	poll   = 5 * time.Second
	memory = 3 * poll // several log-servers answer in turn: one good answer does not cancel a bad one
)

// Watch compares the keys of log-servers with those of this process. It is safe
// for concurrent use.
type Watch struct {
	keys *signing.KeySet

	mu    sync.Mutex
	found error
	at    time.Time
}

// New returns a Watch over the keys.
func New(keys *signing.KeySet) *Watch { return &Watch{keys: keys} }

// Check is for translog.Client. It returns an error where this process lacks a key
// of the log, and where the log, which failed, lacks one of this process.
func (w *Watch) Check(r *http.Response) error {
	told := r.Header.Get(header)
	if told == "" { // of a release before this one
		return nil
	}
	theirs := strings.Split(told, ",")
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

// Ready returns an error where this process lacks a key that a log-server signs
// with, as of the last 15 s.
func (w *Watch) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found != nil && time.Since(w.at) < memory {
		return w.found
	}
	return nil
}

// Run asks the log again and again, until ctx ends, so that a process that serves
// nobody learns of keys too.
func (w *Watch) Run(ctx context.Context, ask func(context.Context) error, logger *slog.Logger) {
	lacking := false
	for {
		_ = ask(ctx) // Check sees the answer; a log out of reach says nothing
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

// maxName is the longest application_name of Postgres.
const maxName = 63

const namePrefix = "fairpact/"

// noSecrets stands for the server secrets of a process that has none.
const noSecrets = "-"

// Name is how a process names itself to Postgres: binary, key set, set of server
// secrets (empty: it has none), and the end of its host's name, which for a pod is
// what is its own.
func Name(binary string, keys *signing.KeySet, secrets string) string {
	host, _ := os.Hostname()
	name := namePrefix + binary + "/" + keys.Digest() + "/" + cmp.Or(secrets, noSecrets) + "/"
	self := fmt.Sprintf("%s.%d", host, os.Getpid())
	return name + self[max(0, len(self)-(maxName-len(name))):]
}

// Process is a process that runs. Secrets is the digest of its server secrets, or
// empty: it has none, or is of a release before this one.
type Process struct{ Binary, KeySet, Secrets, Host string }

// Parse reads an application_name; ok is false where it is of something else.
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
