package signing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/platform/service"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// Settings are the flags and environment variables that name a deployment's keys.
type Settings struct {
	KeySetFile string `env:"FAIRPACT_KEY_SET_FILE" type:"path" help:"JSON file with the key set. It states the URI of each key that may sign (file://PATH, dev://PATH for a development key, or a key in a KMS or HSM), the time from which that key signs, and the retired keys. If only one key signs, its pubkey may be left out. All processes use the same key set. To write the file, use fairpactctl signing-keys."`
}

// Open returns the deployment's KeySet and a Ring. ctx bounds the calls to a remote provider.
func (c *Settings) Open(ctx context.Context, logger *slog.Logger) (*Ring, *KeySet, error) {
	if c.KeySetFile == "" {
		return nil, nil, errors.New(`FAIRPACT_KEY_SET_FILE is not set: set it to the path of a key set, such as {"keys":[{"uri":"URI","signs_from":0}]}, where URI is one of ` + knownURIs())
	}
	var set *keys.Set
	var ring *Ring
	document, err := os.ReadFile(c.KeySetFile)
	if err == nil {
		set, err = ParseKeySet(ctx, document)
	}
	if err == nil {
		ring, err = OpenRing(ctx, NewKeySet(set), logger)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_KEY_SET_FILE: %s: %w", c.KeySetFile, err)
	}
	return ring, ring.keys, nil
}

// Follow returns the file of the key set for service.Follow. A changed set must accept each key that the
// process accepts now, and must not reopen a closed key: an older file, restored by mistake, would make
// certificates invalid or accept those of a thief. admit may refuse a set for other reasons.
func (c *Settings) Follow(r *Ring, admit func(context.Context, keys.List) error) service.File {
	return service.File{Setting: "FAIRPACT_KEY_SET_FILE", Path: c.KeySetFile, Use: func(ctx context.Context, document []byte) (changed bool, err error) {
		set, err := ParseKeySet(ctx, document)
		if err != nil || set.Digest() == r.keys.Digest() {
			return false, err
		}
		now := r.keys.unix()
		for _, key := range r.keys.Keys() {
			changed, err := set.Accepted(key.Label, now)
			switch {
			case key.State == keys.Next:
			case err != nil:
				return false, fmt.Errorf("the set lacks %s, which this process accepts: add the key", key.Label)
			case key.Closed() && (!changed.Closed() || *changed.TreeSize > *key.TreeSize), key.Disowned && !changed.Disowned:
				return false, fmt.Errorf("the set reopens the closed key %s: use the newest set, or restart the process if this is intended", key.Label)
			}
		}
		if err := admit(ctx, set.At(now)); err != nil {
			return false, err
		}
		return true, r.Use(ctx, set)
	}}
}

var (
	keySetInfo = telemetry.NewGaugeVec("fairpact_signing_key_set",
		"Always 1. The digest label identifies this process's key set. All processes should show the same digest.", "digest")

	keysUnusable = telemetry.NewGauge("fairpact_signing_keys_unusable",
		"Number of keys that sign now or later and that this process could not open.")
)

// Ring signs with the key of a KeySet that signs now. It is safe for concurrent use.
type Ring struct {
	keys   *KeySet
	logger *slog.Logger
	end    context.CancelFunc
	loop   sync.WaitGroup
	woken  chan struct{} // of capacity 1: the key set has changed

	mu     sync.Mutex
	open   map[string]opened // by label of the public key
	former []*Signer         // of keys whose URI has changed; a call may still use them
	failed map[string]error  // why a key could not be opened, by label of the public key
}

type opened struct {
	*Signer
	uri string
}

const (
	openTimeout = 10 * time.Second
	openPause   = 30 * time.Second
)

// OpenRing opens the key that signs now. A loop opens the keys with a later signs_from, and retries.
func OpenRing(ctx context.Context, set *KeySet, logger *slog.Logger) (*Ring, error) {
	r := newRing(set, logger)
	if err := r.Use(ctx, set.set.Load()); err != nil {
		return nil, err
	}
	background, end := context.WithCancel(context.Background())
	r.end = end
	r.loop.Go(func() { r.openLater(background) })
	return r, nil
}

func newRing(set *KeySet, logger *slog.Logger) *Ring {
	return &Ring{keys: set, logger: logger, end: func() {}, woken: make(chan struct{}, 1), open: map[string]opened{}, failed: map[string]error{}}
}

// Use opens the key of the set that signs now, and then replaces the KeySet's set. After an error the
// former set is still in use.
func (r *Ring) Use(ctx context.Context, set *keys.Set) error {
	now := set.Signs(r.keys.unix())
	if !r.has(now) {
		if err := r.try(ctx, now); err != nil {
			r.forget(r.keys.set.Load()) // the key may be one that only the refused set has
			return fmt.Errorf("cannot open %s, the key that signs now: %w", now.Label, err)
		}
	}
	r.keys.set.Store(set)
	keySetInfo.Reset()
	keySetInfo.WithLabelValues(set.Digest()).Set(1)
	r.forget(set)
	select {
	case r.woken <- struct{}{}:
	default:
	}
	return nil
}

// forget drops the failures of keys that the set does not have.
func (r *Ring) forget(set *keys.Set) {
	later := set.Later(r.keys.unix())
	r.mu.Lock()
	defer r.mu.Unlock()
	for label := range r.failed {
		if !slices.ContainsFunc(later, func(key keys.Key) bool { return key.Label == label }) {
			delete(r.failed, label)
		}
	}
	keysUnusable.Set(float64(len(r.failed)))
}

func (r *Ring) try(ctx context.Context, key keys.Key) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	signer, err := Open(ctx, key.URI)
	if err == nil && signer.PublicKey() != key.Label {
		err = fmt.Errorf("the \"uri\" of this key (%s) holds another key, %s: correct \"uri\" or \"pubkey\" in the key set", signer.Custody(), signer.PublicKey())
		_ = signer.Close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if before, is := r.open[key.Label]; is {
			r.former = append(r.former, before.Signer)
		}
		r.open[key.Label] = opened{signer, key.URI}
		delete(r.failed, key.Label)
	} else {
		r.failed[key.Label] = err
	}
	keysUnusable.Set(float64(len(r.failed)))
	return err
}

func (r *Ring) openLater(ctx context.Context) {
	for {
		var again <-chan time.Time // never, if all are open
		set := r.keys.set.Load()
		r.forget(set)
		for _, key := range set.Later(r.keys.unix()) {
			if r.has(key) {
				continue
			}
			if err := r.try(ctx, key); err != nil && ctx.Err() == nil {
				again = time.After(openPause)
				r.logger.Error("cannot open a signing key, retrying", "pubkey", key.Label, "signs_from", *key.SignsFrom, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.woken:
		case <-again:
		}
	}
}

func (r *Ring) signer(label string) *Signer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[label].Signer
}

func (r *Ring) has(key keys.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, is := r.open[key.Label]
	return is && one.uri == key.URI
}

// Sign signs a SHA-256 digest with the key that signs now, as Signer.Sign does.
func (r *Ring) Sign(ctx context.Context, digest [32]byte) (string, error) {
	label := r.keys.set.Load().Signs(r.keys.unix()).Label
	if signer := r.signer(label); signer != nil {
		signature, err := signer.Sign(ctx, digest)
		if err == nil {
			r.keys.remember(digest, signature, label) // Signer.Sign has verified the signature
		}
		return signature, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failed[label]; err != nil {
		return "", fmt.Errorf("%w: the key that signs now, %s, could not be opened: %v", ErrUnavailable, label, err)
	}
	return "", fmt.Errorf("%w: the key that signs now, %s, is not open yet", ErrUnavailable, label)
}

// Custody describes where the labelled key is kept (SPEC 2.8, key_custody).
func (r *Ring) Custody(label string) string {
	if signer := r.signer(label); signer != nil {
		return signer.Custody()
	}
	return "a key that this process cannot use"
}

// Development reports whether the labelled key is a development key that this process has opened.
func (r *Ring) Development(label string) bool {
	signer := r.signer(label)
	return signer != nil && signer.Ephemeral()
}

// Close closes all signers. Afterwards Sign returns an error.
func (r *Ring) Close() error {
	r.end()
	r.loop.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, one := range r.open {
		errs = append(errs, one.Close())
	}
	for _, signer := range r.former {
		errs = append(errs, signer.Close())
	}
	return errors.Join(errs...)
}
