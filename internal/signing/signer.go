// Package signing holds the deployment's key: it signs digests with it, wherever
// it lives, and verifies signatures under it and under the keys it replaced.
//
// Labels and signatures are text. `es256` is ECDSA over P-256: the key is
// compressed SEC1 in hex, the signature raw r‖s in hex with s in the lower half
// of the order. `ed25519` verifies old certificates only; nothing here signs
// with it.
package signing

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"time"
)

const (
	// DefaultDeadline bounds one call of Sign, waiting for a free slot included.
	DefaultDeadline = 3 * time.Second

	// DefaultConcurrency is how many calls a provider serves at once; more wait.
	DefaultConcurrency = 32
)

// ErrProvider marks an answer of a provider that is not a signature of the
// digest under the pinned public key. Nothing of such an answer is returned.
var ErrProvider = errors.New("the provider's answer is not a signature of this digest under the pinned public key")

// Signer signs digests with one key. It is safe for concurrent use.
type Signer struct {
	provider provider
	public   *ecdsa.PublicKey // pinned when the signer opened
	label    string
	deadline time.Duration
	slots    chan struct{}
}

func newSigner(p provider, deadline time.Duration, concurrency int) (*Signer, error) {
	public := p.publicKey()
	label, err := es256Label(public)
	if err != nil {
		return nil, fmt.Errorf("the signing key (%s): %w", p.custody(), err)
	}
	return &Signer{
		provider: p,
		public:   public,
		label:    label,
		deadline: deadline,
		slots:    make(chan struct{}, concurrency),
	}, nil
}

// PublicKey is the verifying key with its label: `es256:` and 66 hex digits, the
// compressed SEC1 form (SPEC 2.8).
func (s *Signer) PublicKey() string { return s.label }

// Custody says in words where the key lives (SPEC 2.8, key_custody).
func (s *Signer) Custody() string { return s.provider.custody() }

// Ephemeral is true for a development key (SPEC 2.8, dev_ephemeral_key).
func (s *Signer) Ephemeral() bool { return s.provider.ephemeral() }

// Sign gives the signature of a SHA-256 digest as `es256:` and 128 hex digits,
// r‖s with low s (SPEC 5.6). Two signatures of one digest differ.
//
// What it returns has been verified with the public key that was pinned when the
// signer opened; an answer that does not verify is ErrProvider. The error wraps
// context.DeadlineExceeded when the provider took longer than the deadline, and
// the context's own error when the caller gave up first.
func (s *Signer) Sign(ctx context.Context, digest [32]byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("sign: all %d slots of the signer (%s) stayed busy: %w", cap(s.slots), s.Custody(), ctx.Err())
	}

	type answer struct {
		der []byte
		err error
	}
	answered := make(chan answer, 1)
	// A goroutine, for some providers call into code that heeds no context. The
	// slot is held until the provider is truly done, so a stuck one cannot pile
	// up more calls than there are slots.
	go func() {
		defer func() { <-s.slots }()
		der, err := s.provider.sign(ctx, digest)
		answered <- answer{der, err}
	}()

	select {
	case <-ctx.Done():
		return "", fmt.Errorf("sign: no answer from the signer (%s): %w", s.Custody(), ctx.Err())
	case a := <-answered:
		if a.err != nil {
			return "", fmt.Errorf("sign: the signer (%s) failed: %w", s.Custody(), a.err)
		}
		r, sLow, err := parseDER(a.der)
		if err != nil {
			return "", fmt.Errorf("sign: %w: %w", ErrProvider, err)
		}
		if !ecdsa.Verify(s.public, digest[:], r, sLow) {
			return "", fmt.Errorf("sign: %w", ErrProvider)
		}
		return formatES256(r, sLow), nil
	}
}
