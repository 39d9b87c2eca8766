package signing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/rules/keys"
)

// Settings are the flags and environment variables that name a deployment's keys. Every
// binary that signs has these settings.
type Settings struct {
	KeySetFile string   `env:"FAIRPACT_KEY_SET_FILE" type:"path" help:"JSON file with the key set. It states the URI of each key that may sign, the time from which that key signs, and the retired keys. All processes use the same key set. To write the file, use fairpactctl signing-keys."`
	SigningKey string   `env:"FAIRPACT_SIGNING_KEY" help:"Without a key set file: the URI of the only key that signs. This is file://PATH, dev://PATH (a development key), or the URI of a key in a KMS or HSM."`
	PublicKey  string   `env:"FAIRPACT_PUBLIC_KEY" help:"Without a key set file: the published public key, es256:HEX. The process does not start if this is not the public key of the signing key. Default: the public key of the signing key."`
	LegacyKeys []string `env:"FAIRPACT_LEGACY_KEYS" sep:"," help:"Without a key set file: retired public keys whose signatures stay valid, es256:HEX or ed25519:HEX, comma-separated."`
}

// Open returns the deployment's KeySet and a Ring that signs with the keys of the set. An
// error of Open names the setting to correct. ctx bounds the calls that Open makes to a
// remote provider.
func (c *Settings) Open(ctx context.Context, logger *slog.Logger) (*Ring, *KeySet, error) {
	set, err := c.keySet(ctx)
	if err != nil {
		return nil, nil, err
	}
	ring, err := OpenRing(ctx, NewKeySet(set), logger)
	if err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_KEY_SET_FILE or FAIRPACT_SIGNING_KEY: %w", err)
	}
	return ring, ring.keys, nil
}

func (c *Settings) keySet(ctx context.Context) (set *keys.Set, err error) {
	one := c.SigningKey != "" || c.PublicKey != "" || len(c.LegacyKeys) > 0
	switch {
	case c.KeySetFile != "" && one:
		return nil, errors.New("FAIRPACT_KEY_SET_FILE is set together with FAIRPACT_SIGNING_KEY, FAIRPACT_PUBLIC_KEY or FAIRPACT_LEGACY_KEYS: keep FAIRPACT_KEY_SET_FILE and unset the others, because the file lists all keys")
	case c.KeySetFile != "":
		document, err := os.ReadFile(c.KeySetFile)
		if err == nil {
			set, err = ParseKeySet(ctx, document)
		}
		if err != nil {
			return nil, fmt.Errorf("FAIRPACT_KEY_SET_FILE: %s: %w", c.KeySetFile, err)
		}
		return set, nil
	case c.SigningKey == "":
		return nil, errors.New("neither FAIRPACT_KEY_SET_FILE nor FAIRPACT_SIGNING_KEY is set: set FAIRPACT_KEY_SET_FILE to the path of a key set, or FAIRPACT_SIGNING_KEY to one of " + knownURIs())
	}
	label := c.PublicKey
	if label == "" {
		if label, err = PublicKeyOf(ctx, c.SigningKey); err != nil {
			return nil, fmt.Errorf("FAIRPACT_SIGNING_KEY: %w", err)
		}
	}
	if set, err = keys.OneSigner(label, c.SigningKey, c.LegacyKeys, int64(Margin()/time.Second)); err != nil {
		return nil, fmt.Errorf("FAIRPACT_PUBLIC_KEY, FAIRPACT_LEGACY_KEYS: %w", err)
	}
	return set, nil
}

// Ring signs digests with the key of a KeySet that signs now: the key with the latest signs_from
// that is not in the future (if there is none: the first key). A Ring opens this key and the keys
// with a later signs_from, but no retired key. A Ring is safe for concurrent use.
type Ring struct {
	keys   *KeySet
	logger *slog.Logger
	end    context.CancelFunc
	loop   sync.WaitGroup

	mu     sync.Mutex
	open   map[string]*Signer // by label of the public key
	failed map[string]error   // why a key could not be opened, by label of the public key
}

const (
	openTimeout = 10 * time.Second
	openPause   = 30 * time.Second
)

// OpenRing opens the key that signs now, and returns an error if that key does not open. A
// background loop opens the keys with a later signs_from. If such a key does not open, the loop
// logs the error, counts the key in fairpact_signing_keys_unusable, and retries.
func OpenRing(ctx context.Context, set *KeySet, logger *slog.Logger) (*Ring, error) {
	r := newRing(set, logger)
	now := set.set.Signs(set.unix())
	if err := r.try(ctx, now); err != nil {
		return nil, fmt.Errorf("cannot open %s, the key that signs now: %w", now.Label, err)
	}
	background, end := context.WithCancel(context.Background())
	r.end = end
	r.loop.Go(func() { r.openLater(background) })
	return r, nil
}

func newRing(set *KeySet, logger *slog.Logger) *Ring {
	keySetInfo.Reset()
	keySetInfo.WithLabelValues(set.Digest()).Set(1)
	return &Ring{keys: set, logger: logger, end: func() {}, open: map[string]*Signer{}, failed: map[string]error{}}
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
		r.open[key.Label] = signer
		delete(r.failed, key.Label)
	} else {
		r.failed[key.Label] = err
	}
	keysUnusable.Set(float64(len(r.failed)))
	return err
}

func (r *Ring) openLater(ctx context.Context) {
	for {
		missing := 0
		for _, key := range r.keys.set.Later(r.keys.unix()) {
			if r.signer(key.Label) != nil {
				continue
			}
			if err := r.try(ctx, key); err != nil && ctx.Err() == nil {
				missing++
				r.logger.Error("cannot open a signing key, retrying", "pubkey", key.Label, "signs_from", *key.SignsFrom, "err", err)
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

// Sign signs a SHA-256 digest with the key that signs now, as Signer.Sign does. The error
// wraps ErrUnavailable if that key is not open.
func (r *Ring) Sign(ctx context.Context, digest [32]byte) (string, error) {
	label := r.keys.set.Signs(r.keys.unix()).Label
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

// Custody describes where the key that is published as current is kept (SPEC 2.8, key_custody).
// During a rotation, a new key is published as current one Margin before it begins to sign.
func (r *Ring) Custody() string {
	if signer := r.signer(r.keys.Keys().Current()); signer != nil {
		return signer.Custody()
	}
	return "a key that this process cannot use"
}

// Ephemeral reports whether the key that is published as current is a development key
// (SPEC 2.8, dev_ephemeral_key).
func (r *Ring) Ephemeral() bool { return r.Development(r.keys.Keys().Current()) }

// Development reports whether the labelled key is a development key that this process has
// opened.
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
	for _, signer := range r.open {
		errs = append(errs, signer.Close())
	}
	return errors.Join(errs...)
}
