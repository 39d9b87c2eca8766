// Package provider defines how package signing uses a store of private keys.
package provider

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Kind is the purpose of a key, which determines the signature scheme.
type Kind int

const (
	P256    Kind = iota // a deployment key: signs certificates and tree heads with ECDSA on P-256 and SHA-256
	Ed25519             // a log key: signs checkpoints with Ed25519
)

// Provider signs with one key. Package signing retries, bounds concurrency, runs the circuit breaker,
// converts to low s and verifies. An error after which a retry may succeed MUST be marked by Transient.
type Provider interface {
	// Key returns the *ecdsa.PublicKey or ed25519.PublicKey. custody says where the private key is kept. It is
	// public, so it MUST NOT contain a file path, an account or an address. Key is called before Sign.
	Key(ctx context.Context) (public crypto.PublicKey, custody string, err error)

	// Sign signs data: for P256 a SHA-256 digest, as ASN.1 DER with low or high s; for Ed25519 the message.
	// Sign MUST return when ctx ends, even if the store hangs.
	Sign(ctx context.Context, data []byte) (signature []byte, err error)

	// Close releases connections and sessions. Package signing calls Close last.
	Close() error
}

type transient struct{ error }

func (t transient) Unwrap() error { return t.error }

// Transient marks err as a failure after which a retry may succeed.
func Transient(err error) error { return transient{err} }

// IsTransient reports whether Transient has marked err or an error that err wraps.
func IsTransient(err error) bool {
	_, is := errors.AsType[transient](err)
	return is
}

// ParseURI splits the part of a cloud KMS's URI after "scheme:" into its path and options. `valid` checks
// the value of each known option. The other arguments complete error texts. An error MUST NOT show text
// that may be a credential: the value of an option, or a URI that contains '@'.
func ParseURI(scheme, rest, credentials, options string, valid map[string]func(string) bool) (path string, values map[string]string, err error) {
	if strings.Contains(rest, "@") {
		return "", nil, fmt.Errorf("the %s URI contains '@' (the URI is not shown, because it may contain a password): write the URI without credentials; the process gets them from %s", scheme, credentials)
	}
	path, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	given, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, fmt.Errorf("the query of the %s URI does not parse: write ?OPTION=VALUE or ?OPTION=VALUE&OPTION=VALUE, with the options %s", scheme, options)
	}
	values = map[string]string{}
	for option, all := range given {
		if known := valid[option]; len(all) != 1 || known == nil || !known(all[0]) {
			return "", nil, fmt.Errorf("the option %q of the %s URI is unknown, repeated or malformed: use only %s, each at most once", option, scheme, options)
		}
		values[option] = all[0]
	}
	return path, values, nil
}
