package signing

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// provider is one home of one P-256 key. It does the least that only it can do;
// what every home needs alike (deadline, bounded concurrency, low-S, checking
// the answer) is Signer's.
type provider interface {
	// sign gives the ASN.1 DER form of an ECDSA signature of the digest. High-S
	// answers are fine. It SHOULD end early when ctx does.
	sign(ctx context.Context, digest [32]byte) (der []byte, err error)

	// publicKey is read once, when the signer opens: that value is pinned, and
	// every later answer is checked against it.
	publicKey() *ecdsa.PublicKey

	// custody says in words, to the public, where the key lives; no path, no
	// account, no address of a machine.
	custody() string

	// ephemeral is true for a key that is made on the spot for development.
	ephemeral() bool

	// close gives back connections and sessions; no sign runs or follows.
	close() error
}

// transient marks an error of sign that a second try may mend: throttling, a
// 5xx, a connection that broke, an answer that was damaged on its way. Only such
// errors are tried again.
type transient struct{ error }

func (t transient) Unwrap() error { return t.error }

// knownSchemes is what Open's errors name.
const knownSchemes = "file://PATH (a P-256 private key in PEM) or dev://PATH (a development key, made at first use)"

var schemeShape = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,31}$`)

// Open gives the signer that a URI names:
//
//	file://PATH   a P-256 private key in PEM, PKCS#8 or SEC1, readable by its owner alone
//	dev://PATH    one development key that all binaries of a machine share, made at first use
//
// What follows the two slashes is the path as it is, relative or absolute
// (file:///etc/key.pem), with no percent-decoding. ctx bounds what opening asks
// of a remote provider. No error shows the URI beyond its scheme: other schemes
// carry PINs in theirs.
func Open(ctx context.Context, uri string) (*Signer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open signer: %w", err)
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || !schemeShape.MatchString(scheme) {
		return nil, errors.New("the signer URI has no scheme: use " + knownSchemes)
	}
	path, slashes := strings.CutPrefix(rest, "//")

	var p provider
	var err error
	switch scheme {
	case "file", "dev":
		if !slashes || path == "" {
			return nil, fmt.Errorf("the signer URI of scheme %s names no file: write %s://PATH", scheme, scheme)
		}
		if scheme == "file" {
			p, err = openFile(path)
		} else {
			p, err = openDev(path)
		}
	case "gcpkms":
		p, err = openGCP(ctx, path)
	case "awskms":
		p, err = openAWS(ctx, path)
	case "pkcs11":
		p, err = openPKCS11(rest)
	default:
		return nil, fmt.Errorf("the signer scheme %q is not known: use %s", scheme, knownSchemes)
	}
	if err != nil {
		return nil, err
	}
	return newSigner(p, DefaultDeadline, DefaultConcurrency)
}
