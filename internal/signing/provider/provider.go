// Package provider defines how package signing uses a store of private keys: a
// cloud KMS, an HSM or a file. Each store has its own package beside this one.
package provider

import (
	"context"
	"crypto"
	"errors"
)

// Kind is the purpose of a key, which determines the signature scheme.
type Kind int

const (
	P256    Kind = iota // a deployment key: signs certificates and tree heads with ECDSA on P-256 and SHA-256
	Ed25519             // a log key: signs checkpoints with Ed25519
)

// Provider signs with one key and does only what is specific to the key's store. Package
// signing retries, bounds concurrency, runs the circuit breaker, converts to low s, and
// verifies each signature. If a method fails but a retry may succeed, the method MUST return
// an error that the function Transient has marked.
type Provider interface {
	// Key returns the public key, an *ecdsa.PublicKey or an ed25519.PublicKey. custody
	// says where the private key is kept. custody is public, so it MUST NOT contain a file
	// path, an account or an address. Package signing calls Key until one call
	// succeeds, pins the public key, and only then calls Sign.
	Key(ctx context.Context) (public crypto.PublicKey, custody string, err error)

	// Sign signs data. For P256, data is a SHA-256 digest and the signature is
	// ASN.1 DER with low or high s. For Ed25519, data is the message. Sign MUST
	// return when ctx ends, even if the store hangs.
	Sign(ctx context.Context, data []byte) (signature []byte, err error)

	// Close releases connections and sessions. Package signing calls Close last.
	Close() error
}

type transient struct{ error }

func (t transient) Unwrap() error { return t.error }

// Transient marks err as a failure after which a retry may succeed: throttling, a 5xx, a
// broken connection, a damaged answer. Package signing retries only marked errors, with one
// exception: Signer.Sign retries signing.ErrProvider once.
func Transient(err error) error { return transient{err} }

// IsTransient reports whether Transient has marked err or an error that err wraps.
func IsTransient(err error) bool {
	_, is := errors.AsType[transient](err)
	return is
}
