package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
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
	// account, no address of a machine. A key version is fine.
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
const knownSchemes = "gcpkms://projects/…/cryptoKeyVersions/N (Google Cloud KMS), awskms:///ARN (AWS KMS), pkcs11:… (an HSM), file://PATH (a P-256 private key in PEM) or dev://PATH (a development key, made at first use)"

var schemeShape = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,31}$`)

// Open gives the signer that a URI names:
//
//	gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N   Google Cloud KMS
//	awskms:///ARN-or-key-id   AWS KMS
//	pkcs11:token=…;object=…   an HSM by its PKCS#11 module (RFC 7512)
//	file://PATH   a P-256 private key in PEM, PKCS#8 or SEC1, readable by its owner alone
//	dev://PATH    one development key that all binaries of a machine share, made at first use
//
// What follows the two slashes of file and dev is the path as it is, relative or
// absolute (file:///etc/key.pem), with no percent-decoding. ctx bounds what
// opening asks of a remote provider.
//
// Opening signs one digest that is no certificate's and no tree head's, so that
// a key that may be read but not used stops the start and not the first deal.
// The errors name what is wrong with the key and what mends it. None shows a
// PIN, or a URI of which a part may be one.
func Open(ctx context.Context, uri string) (*Signer, error) {
	return open(ctx, uri, defaultLimits)
}

// PublicKeyOf returns the label of the key that a URI names. It needs the right to
// read the public key, not to sign.
func PublicKeyOf(ctx context.Context, uri string) (string, error) {
	p, _, err := openProvider(ctx, uri)
	if err != nil {
		return "", err
	}
	label, err := es256Label(p.publicKey())
	return label, errors.Join(err, p.close())
}

func open(ctx context.Context, uri string, l limits) (*Signer, error) {
	p, scheme, err := openProvider(ctx, uri)
	if err != nil {
		return nil, err
	}
	s, err := newSigner(p, scheme, l)
	if err != nil {
		_ = p.close()
		return nil, err
	}
	if _, err := s.Sign(ctx, trial); err != nil {
		_ = s.Close()
		if scheme == "pkcs11" && errors.Is(err, ErrProvider) {
			err = fmt.Errorf("the private and the public key object of that name do not match; regenerate the pair or name the pair with id=: %w", err)
		}
		return nil, fmt.Errorf("the signing key was found but does not sign: %w", err)
	}
	return s, nil
}

func openProvider(ctx context.Context, uri string) (p provider, scheme string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", fmt.Errorf("open signer: %w", err)
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || !schemeShape.MatchString(scheme) {
		return nil, "", errors.New("the signer URI has no scheme: use " + knownSchemes)
	}
	path, slashes := strings.CutPrefix(rest, "//")
	switch scheme {
	case "file", "dev":
		if !slashes || path == "" {
			return nil, "", fmt.Errorf("the signer URI of scheme %s names no file: write %s://PATH", scheme, scheme)
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
		p, err = openPKCS11(ctx, rest)
	default:
		err = fmt.Errorf("the signer scheme %q is not known: use %s", scheme, knownSchemes)
	}
	return p, scheme, err
}

// trial is what Open signs. Neither a certificate nor a tree head has these
// bytes, so nobody can pass its signature off as one of either.
var trial = sha256.Sum256([]byte("fairpact/start-up-check: neither a certificate nor a tree head"))

// readKey reads a public key, with a few tries where the trouble may pass.
func readKey(ctx context.Context, once func(context.Context) error) error {
	_, err := retry(ctx, 3, isTransient, func() (struct{}, error) {
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return struct{}{}, once(call)
	})
	return err
}
