// Package provider defines how package signing uses a store of private keys: a
// cloud KMS, an HSM or a file. Each store has its own package beside this one.
package provider

import (
	"context"
	"crypto"
	"errors"
)

// Kind says what a key is for, and so which signature scheme it uses.
type Kind int

const (
	P256    Kind = iota // a deployment key: ECDSA over P-256 with SHA-256
	Ed25519             // a log key: Ed25519
)

// Provider signs with one key and does only what is specific to its store. Package
// signing retries, bounds concurrency, runs the circuit breaker, converts to
// low s, and verifies each signature. A call that failed but may succeed later
// returns an error that Transient has marked.
type Provider interface {
	// Key returns the public key, an *ecdsa.PublicKey or an ed25519.PublicKey. custody
	// says where the private key is kept. It is public, so it MUST NOT have a path, an
	// account or an address. Package signing calls Key before the first Sign, until Key
	// succeeds once, and pins the public key.
	Key(ctx context.Context) (public crypto.PublicKey, custody string, err error)

	// Sign signs data. For P256, data is a SHA-256 digest and the signature is
	// ASN.1 DER with low or high s. For Ed25519, data is the message. Sign MUST
	// return when ctx ends, even if the store hangs.
	Sign(ctx context.Context, data []byte) (signature []byte, err error)

	// Close releases connections and sessions. Package signing calls it last.
	Close() error
}

type transient struct{ error }

func (t transient) Unwrap() error { return t.error }

// Transient marks err as a failure after which a retry may succeed: throttling, a 5xx, a
// broken connection, a damaged answer. Package signing retries only marked failures, and
// ErrProvider once.
func Transient(err error) error { return transient{err} }

// IsTransient reports whether Transient has marked err or an error that it wraps.
func IsTransient(err error) bool {
	_, is := errors.AsType[transient](err)
	return is
}
