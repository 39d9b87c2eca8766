package signing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// Margin returns how far the clocks of processes and clients may differ: keys.Margin, or less
// in tests of key rotation.
func Margin() time.Duration {
	if d, err := time.ParseDuration(crash.Setting("FAIRPACT_TEST_KEY_MARGIN")); err == nil {
		return d
	}
	return keys.Margin * time.Second
}

// ParseKeySet reads the document of a key set (see keys.ParseDocument). If only one key of the
// document signs, its pubkey may be left out: ParseKeySet then asks the key's KMS, HSM or file.
func ParseKeySet(ctx context.Context, document []byte) (*keys.Set, error) {
	list, err := keys.ParseDocument(document)
	if err != nil {
		return nil, err
	}
	var signs []*keys.Key
	for i := range list {
		if list[i].URI != "" {
			signs = append(signs, &list[i])
		}
	}
	if len(signs) == 1 && signs[0].Label == "" {
		if signs[0].Label, err = PublicKeyOf(ctx, signs[0].URI); err != nil {
			return nil, err
		}
	}
	return keys.NewSet(list, int64(Margin()/time.Second))
}

// KeySet is the key set in use, at the time of the process's clock. Ring.Use replaces it. A KeySet is
// safe for concurrent use.
type KeySet struct {
	set atomic.Pointer[keys.Set]
	now func() time.Time

	verified [256]atomic.Pointer[verified] // indexed by the first byte of the digest
}

// verified is a signature that verifies. A process soon verifies the signatures that it has just made.
type verified struct {
	digest    [32]byte
	signature string
	label     string
}

// NewKeySet returns a set that reads the process's clock.
func NewKeySet(set *keys.Set) *KeySet {
	k := &KeySet{now: crash.Now}
	k.set.Store(set)
	return k
}

func (k *KeySet) unix() int64 { return k.now().Unix() }

// Keys returns all keys as published now.
func (k *KeySet) Keys() keys.List { return k.set.Load().At(k.unix()) }

// Status returns the label of the key that signs now, and the labels of the other accepted keys.
func (k *KeySet) Status() (signs string, others []string) { return k.set.Load().Status(k.unix()) }

// Published returns the body that GET /v1/pubkeys answers now.
func (k *KeySet) Published() []byte { return k.set.Load().Published(k.unix()) }

// Digest returns 12 hex digits that identify the document.
func (k *KeySet) Digest() string { return k.set.Load().Digest() }

// Due returns the labels of the keys that have begun to sign. The last one signs now.
func (k *KeySet) Due() []string { return k.set.Load().Due(k.unix()).Labels() }

// Accepts reports whether signatures by the labelled key verify now.
func (k *KeySet) Accepts(label string) bool {
	_, err := k.set.Load().Accepted(label, k.unix())
	return err == nil
}

// CheckClock compares this process's clock with the unix time of the database's clock.
func (k *KeySet) CheckClock(database int64) error { return k.set.Load().CheckClock(k.unix(), database) }

// SignerOf returns the accepted key that signed a message (SPEC 5.6). See keys.Set.SignerOf for errors.
func (k *KeySet) SignerOf(message []byte, signature string) (keys.Key, error) {
	if strings.HasPrefix(signature, "es256:") {
		return k.SignedBy(sha256.Sum256(message), signature)
	}
	return k.set.Load().SignerOf(message, signature, k.unix())
}

// SignedBy returns the accepted key that signed a SHA-256 digest with es256.
func (k *KeySet) SignedBy(digest [32]byte, signature string) (keys.Key, error) {
	if v := k.verified[digest[0]].Load(); v != nil && v.digest == digest && v.signature == signature {
		return k.set.Load().Accepted(v.label, k.unix())
	}
	key, err := k.set.Load().SignedBy(digest, signature, k.unix())
	if err == nil {
		k.remember(digest, signature, key.Label)
	}
	return key, err
}

func (k *KeySet) remember(digest [32]byte, signature, label string) {
	k.verified[digest[0]].Store(&verified{digest, signature, label})
}

const (
	keysHeader = "Fairpact-Signing-Keys"
	pollKeys   = 5 * time.Second

	// memory is how long Ready reports a missing key. An answer that lists only accepted keys does
	// not clear the report: a log-server without the new key set may have sent it.
	memory = 3 * pollKeys
)

// Announce adds a header to each answer of `next` that lists the keys that may already sign.
func (k *KeySet) Announce(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(keysHeader, strings.Join(k.Due(), ","))
		next.ServeHTTP(w, r)
	})
}

// Watch compares the keys that log-server announces with those of this process. A process that does
// not accept an announced key has missed a rotation: it treats the log as unavailable, and is not ready
// until it gets the new key set. An announcement makes no key trusted. A Watch is safe for concurrent use.
type Watch struct {
	keys *KeySet

	mu    sync.Mutex
	found error
	at    time.Time
}

// NewWatch returns a Watch for a process with these keys.
func NewWatch(keys *KeySet) *Watch { return &Watch{keys: keys} }

// Check inspects an answer of log-server, as the field Check of a translog.Client. If the status is not
// 200, it also returns an error if log-server lacks the key with which this process signs.
func (w *Watch) Check(r *http.Response) error {
	named := r.Header.Get(keysHeader)
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

// Ready returns an error if Check found lately that this process lacks a key of a log-server.
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
func (w *Watch) Run(ctx context.Context, ask func(context.Context) error) {
	for {
		_ = ask(ctx) // the error is not needed: Ready returns what Check found
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollKeys):
		}
	}
}
