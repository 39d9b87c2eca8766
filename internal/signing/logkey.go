package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/fairpact/fairpact/internal/signing/awskms"
	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/gcpkms"
	"github.com/fairpact/fairpact/internal/signing/pkcs11"
	"github.com/fairpact/fairpact/internal/signing/transient"
)

// LogKey is an open Ed25519 key, with which a log signs its checkpoints beside
// the deployment key. It is safe for concurrent use.
type LogKey struct {
	provider logProvider
	public   ed25519.PublicKey
	custody  string
	turn     chan struct{} // held while the provider signs
}

// logProvider is Provider for an Ed25519 key, which signs a message and not a
// digest.
type logProvider interface {
	Key(ctx context.Context) (public ed25519.PublicKey, custody string, err error)
	Sign(ctx context.Context, message []byte) ([]byte, error)
	Close() error
}

const logKeyURIs = "gcpkms://projects/…/cryptoKeyVersions/N (Google Cloud KMS), awskms:///ARN (AWS KMS), pkcs11:… (an HSM), file://PATH (an Ed25519 private key in PEM, PKCS#8) or dev://PATH (a development key, made at first use)"

// OpenLogKey returns the key that a URI names, after it has signed once:
//
//	gcpkms:, awskms:, pkcs11:   an Ed25519 key, by a URI as of Open
//	file://PATH   an Ed25519 private key in PEM, PKCS#8, readable by its owner alone
//	dev://PATH    a development key, made at first use
func OpenLogKey(ctx context.Context, uri string) (*LogKey, error) {
	scheme, rest, _ := strings.Cut(uri, ":")
	var p logProvider
	var err error
	switch scheme {
	case "gcpkms":
		p, err = gcpkms.OpenEd25519(ctx, rest)
	case "awskms":
		p, err = awskms.OpenEd25519(ctx, rest)
	case "pkcs11":
		p, err = pkcs11.OpenEd25519(ctx, rest)
	case "file":
		p, err = file.OpenEd25519(ctx, rest)
	case "dev":
		p, err = file.OpenDevEd25519(ctx, rest)
	default:
		return nil, errors.New("the log key is not a known URI: use " + logKeyURIs)
	}
	if err != nil {
		return nil, err
	}
	k := &LogKey{provider: p, turn: make(chan struct{}, 1)}
	k.public, err = retry(ctx, defaultLimits.tries, transient.Is, func() (public ed25519.PublicKey, err error) {
		public, k.custody, err = p.Key(ctx)
		return public, err
	})
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	if _, err = k.Sign(ctx, trial[:]); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("the log key was found but does not sign: %w", err)
	}
	return k, nil
}

// Public returns the public half.
func (k *LogKey) Public() ed25519.PublicKey { return k.public }

// Custody says in words for the public where the key lives.
func (k *LogKey) Custody() string { return k.custody }

// Sign returns a signature (RFC 8032) that verifies.
func (k *LogKey) Sign(ctx context.Context, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultLimits.deadline)
	defer cancel()
	return retry(ctx, defaultLimits.tries, transient.Is, func() ([]byte, error) { return k.signOnce(ctx, message) })
}

// signOnce leaves a provider that ignores its context to itself when ctx ends. It
// calls none again before that has answered.
func (k *LogKey) signOnce(ctx context.Context, message []byte) ([]byte, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("an earlier signature is still under way: %w", ctx.Err())
	}
	done := make(chan struct{})
	var made []byte
	var failed error
	go func() {
		defer func() { <-k.turn }()
		defer close(done)
		made, failed = k.provider.Sign(ctx, message)
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case <-done:
	}
	switch {
	case failed != nil:
		return nil, failed
	case !ed25519.Verify(k.public, message, made):
		return nil, errors.New("its signature does not verify under its public key")
	}
	return made, nil
}

// Close releases what the key holds.
func (k *LogKey) Close() error { return k.provider.Close() }

// ES256 returns the public key of an es256 label.
func ES256(label string) (*ecdsa.PublicKey, error) {
	public, _, err := parseLabel(label)
	if err == nil && public == nil {
		err = errors.New("not an es256 key")
	}
	return public, err
}

// DER returns an es256 signature as an ASN.1 sequence (RFC 3279 2.2.3), the form
// that X.509 and signed notes use.
func DER(signature string) ([]byte, error) {
	scheme, raw, err := parseSignature(signature)
	if err != nil {
		return nil, err
	}
	if scheme != schemeES256 {
		return nil, errors.New("not an es256 signature")
	}
	r, s := rawES256(raw)
	return asn1.Marshal(struct{ R, S *big.Int }{r, s})
}
