package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/signing/awskms"
	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/gcpkms"
	"github.com/fairpact/fairpact/internal/signing/pkcs11"
	"github.com/fairpact/fairpact/internal/signing/transient"
)

// Provider signs with one P-256 key. It does only what its kind of key store
// needs. Retries, the breaker, bounded concurrency, low-S and the verification
// of each signature are Signer's. A call that failed in a way that may pass
// returns a transient.Error.
type Provider interface {
	// Key reads the public key, and says where the private one lives in words for
	// the public: no path, no account, no address. Signer calls it until it
	// succeeds once, before the first Sign, and pins the key.
	Key(ctx context.Context) (public *ecdsa.PublicKey, custody string, err error)

	// Sign returns an ECDSA signature of the digest in ASN.1 DER, of low or high S.
	// It SHOULD return early when ctx ends.
	Sign(ctx context.Context, digest [32]byte) (der []byte, err error)

	// Close releases connections and sessions. No Sign runs or follows.
	Close() error
}

// home is where keys can live, by the scheme of their URIs.
type home struct {
	scheme    string
	form      string // of the URI, for errors
	open      func(ctx context.Context, rest string) (Provider, error)
	ephemeral bool // its keys are made on the spot, for development
}

var homes = []home{
	{"gcpkms", "gcpkms://projects/…/cryptoKeyVersions/N (Google Cloud KMS)", opener(gcpkms.Open), false},
	{"awskms", "awskms:///ARN (AWS KMS)", opener(awskms.Open), false},
	{"pkcs11", "pkcs11:… (an HSM)", opener(pkcs11.Open), false},
	{"file", "file://PATH (a P-256 private key in PEM)", opener(file.Open), false},
	{"dev", "dev://PATH (a development key, made at first use)", opener(file.OpenDev), true},
}

// opener adapts the Open of a provider's package, which does not import this one.
func opener[P Provider](open func(context.Context, string) (P, error)) func(context.Context, string) (Provider, error) {
	return func(ctx context.Context, rest string) (Provider, error) {
		p, err := open(ctx, rest)
		if err != nil {
			return nil, err // and not an interface around a nil P
		}
		return p, nil
	}
}

// knownURIs lists the forms of key URIs.
func knownURIs() string {
	var forms []string
	for _, h := range homes {
		forms = append(forms, h.form)
	}
	return strings.Join(forms, ", ")
}

var schemeShape = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,31}$`)

// Open returns the signer of the key that a URI names:
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
// The errors say what is wrong with the key and how to correct it. They show no
// PIN, and no URI that may embed one.
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
	_, label, _, err := readKey(ctx, p, defaultLimits)
	return label, errors.Join(err, p.Close())
}

func open(ctx context.Context, uri string, l limits) (*Signer, error) {
	p, h, err := openProvider(ctx, uri)
	if err != nil {
		return nil, err
	}
	s, err := newSigner(ctx, p, h, l)
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	if _, err := s.Sign(ctx, trial); err != nil {
		_ = s.Close()
		if h.scheme == "pkcs11" && errors.Is(err, ErrProvider) {
			err = fmt.Errorf("the private and the public key object of that name do not match; regenerate the pair or name the pair with id=: %w", err)
		}
		return nil, fmt.Errorf("the signing key was found but does not sign: %w", err)
	}
	return s, nil
}

func openProvider(ctx context.Context, uri string) (Provider, home, error) {
	if err := ctx.Err(); err != nil {
		return nil, home{}, fmt.Errorf("open signer: %w", err)
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || !schemeShape.MatchString(scheme) {
		return nil, home{}, errors.New("the signer URI has no scheme: use " + knownURIs())
	}
	i := slices.IndexFunc(homes, func(h home) bool { return h.scheme == scheme })
	if i < 0 {
		return nil, home{}, fmt.Errorf("the signer scheme %q is not known: use %s", scheme, knownURIs())
	}
	p, err := homes[i].open(ctx, rest)
	return p, homes[i], err
}

// trial is what Open signs. Neither a certificate nor a tree head has these
// bytes, so its signature cannot pass for one of either.
var trial = sha256.Sum256([]byte("fairpact/start-up-check: neither a certificate nor a tree head"))

// readKey reads the public key from its provider, and checks and labels it.
func readKey(ctx context.Context, p Provider, l limits) (public *ecdsa.PublicKey, label, custody string, err error) {
	public, err = retry(ctx, l.tries, transient.Is, func() (key *ecdsa.PublicKey, err error) {
		key, custody, err = p.Key(ctx)
		return key, err
	})
	if err != nil {
		return nil, "", "", err
	}
	if label, err = es256Label(public); err != nil {
		return nil, "", "", fmt.Errorf("the signing key (%s): %w", custody, err)
	}
	return public, label, custody, nil
}
