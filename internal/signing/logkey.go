package signing

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// LogKey is an Ed25519 key of the log. The log signs each checkpoint with this key and with
// the deployment key. A LogKey is safe for concurrent use.
type LogKey struct {
	provider provider.Provider
	public   ed25519.PublicKey
	custody  string
}

// OpenLogKey returns the Ed25519 key that a URI names, after one trial signature. The comment
// on Open lists the forms of a URI. The PEM file of a file URI must contain a PKCS#8 key.
func OpenLogKey(ctx context.Context, uri string) (*LogKey, error) {
	p, _, err := openProvider(ctx, uri, provider.Ed25519)
	if err != nil {
		return nil, err
	}
	k, err := newLogKey(ctx, p)
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return k, nil
}

func newLogKey(ctx context.Context, p provider.Provider) (*LogKey, error) {
	k := &LogKey{provider: p}
	public, err := retry(ctx, defaultLimits.tries, provider.IsTransient, func() (public crypto.PublicKey, err error) {
		public, k.custody, err = p.Key(ctx)
		return public, err
	})
	if err != nil {
		return nil, err
	}
	var is bool
	if k.public, is = public.(ed25519.PublicKey); !is {
		return nil, fmt.Errorf("the log key (%s) is not an Ed25519 key: give the URI of an Ed25519 key", k.custody)
	}
	if _, err = k.Sign(ctx, trial[:]); err != nil {
		return nil, fmt.Errorf("the log key was found but does not sign: %w", err)
	}
	return k, nil
}

// Public returns the public key.
func (k *LogKey) Public() ed25519.PublicKey { return k.public }

// Custody says in words where the key is kept.
func (k *LogKey) Custody() string { return k.custody }

// Sign returns a verified signature of the message (RFC 8032). It retries transient
// failures.
func (k *LogKey) Sign(ctx context.Context, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultLimits.deadline)
	defer cancel()
	return retry(ctx, defaultLimits.tries, provider.IsTransient, func() ([]byte, error) {
		signature, err := ask(ctx, k.provider, message)
		if err == nil && !ed25519.Verify(k.public, message, signature) {
			return nil, errors.New("the provider of the log key returned a signature that does not verify under the log key's public key")
		}
		return signature, err
	})
}

// Close releases the provider's connections and sessions.
func (k *LogKey) Close() error { return k.provider.Close() }
