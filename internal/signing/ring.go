package signing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Ring signs with the key of the set whose time has come. It opens that key and
// the later ones, never a retired one. It is safe for concurrent use.
type Ring struct {
	keys   *KeySet
	logger *slog.Logger
	end    context.CancelFunc
	loop   sync.WaitGroup

	mu     sync.Mutex
	open   map[string]*Signer // by label
	failed map[string]error   // why a key could not be opened
}

const (
	openTimeout = 10 * time.Second
	openPause   = 30 * time.Second
)

// OpenRing opens the key that signs now, which MUST succeed. The later keys are
// opened in the background: one that cannot be used is logged, counted in
// fairpact_signing_keys_unusable, and tried again until it can.
func OpenRing(ctx context.Context, keys *KeySet, logger *slog.Logger) (*Ring, error) {
	r := newRing(keys, logger)
	now := keys.Signs(keys.now())
	if err := r.try(ctx, now); err != nil {
		return nil, fmt.Errorf("%s, the key that signs now: %w", now.PublicKey, err)
	}
	background, end := context.WithCancel(context.Background())
	r.end = end
	r.loop.Go(func() { r.openLater(background) })
	return r, nil
}

// ringOf returns a ring of one signer that is open.
func ringOf(signer *Signer, keys *KeySet) *Ring {
	r := newRing(keys, nil)
	r.open[signer.PublicKey()] = signer
	return r
}

func newRing(keys *KeySet, logger *slog.Logger) *Ring {
	keySetInfo.Reset()
	keySetInfo.WithLabelValues(keys.Digest()).Set(1)
	return &Ring{keys: keys, logger: logger, end: func() {}, open: map[string]*Signer{}, failed: map[string]error{}}
}

// try opens a key and keeps it, or why it could not.
func (r *Ring) try(ctx context.Context, key Key) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	signer, err := Open(ctx, key.URI)
	if err == nil && signer.PublicKey() != key.PublicKey {
		err = fmt.Errorf("its URI (%s) holds another key, %s: correct \"uri\" or \"pubkey\" in the key set", signer.Custody(), signer.PublicKey())
		_ = signer.Close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.open[key.PublicKey] = signer
		delete(r.failed, key.PublicKey)
	} else {
		r.failed[key.PublicKey] = err
	}
	keysUnusable.Set(float64(len(r.failed)))
	return err
}

// openLater opens the keys that sign later, and those whose time came before they
// could be opened, until it has them all.
func (r *Ring) openLater(ctx context.Context) {
	for {
		missing := 0
		for _, i := range r.keys.signs[r.keys.signer(r.keys.now().Unix()):] {
			key := r.keys.keys[i]
			if r.signer(key.PublicKey) != nil {
				continue
			}
			if err := r.try(ctx, key); err != nil && ctx.Err() == nil {
				missing++
				r.logger.Error("a key that is to sign cannot be used, retrying", "pubkey", key.PublicKey, "signs_from", *key.SignsFrom, "err", err)
			}
		}
		if missing == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(openPause):
		}
	}
}

func (r *Ring) signer(label string) *Signer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[label]
}

// Sign signs a SHA-256 digest with the key whose time has come; see Signer.Sign.
// It returns ErrUnavailable where that key could not be opened.
func (r *Ring) Sign(ctx context.Context, digest [32]byte) (string, error) {
	label := r.keys.Signs(r.keys.now()).PublicKey
	if signer := r.signer(label); signer != nil {
		signature, err := signer.Sign(ctx, digest)
		if err == nil {
			r.keys.remember(digest, signature, label) // Sign has verified it under this key
		}
		return signature, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return "", fmt.Errorf("%w: %s is to sign and could not be opened: %v", ErrUnavailable, label, r.failed[label])
}

// Custody says in words where the key lives that is published as the current one
// (SPEC 2.8, key_custody).
func (r *Ring) Custody() string {
	if signer := r.signer(r.keys.Current()); signer != nil {
		return signer.Custody()
	}
	return "a key that this process cannot use"
}

// Ephemeral reports whether that is a development key (SPEC 2.8,
// dev_ephemeral_key).
func (r *Ring) Ephemeral() bool {
	signer := r.signer(r.keys.Current())
	return signer != nil && signer.Ephemeral()
}

// Close closes all signers. Sign fails from then on.
func (r *Ring) Close() error {
	r.end()
	r.loop.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, signer := range r.open {
		errs = append(errs, signer.Close())
	}
	return errors.Join(errs...)
}
