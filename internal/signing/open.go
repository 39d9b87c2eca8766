package signing

import (
	"context"
	"crypto"
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
	"github.com/fairpact/fairpact/internal/signing/provider"
)

// store is a place for keys, named by the scheme of its URIs.
type store struct {
	scheme    string
	form      string // how the URI looks, for errors
	open      func(ctx context.Context, rest string, kind provider.Kind) (provider.Provider, error)
	ephemeral bool // the service itself makes the keys, for development
}

var stores = []store{
	{"gcpkms", "gcpkms://projects/…/cryptoKeyVersions/N (Google Cloud KMS)", gcpkms.Open, false},
	{"awskms", "awskms:///ARN (AWS KMS)", awskms.Open, false},
	{"pkcs11", "pkcs11:… (an HSM)", pkcs11.Open, false},
	{"file", "file://PATH (a private key in PEM)", file.Open, false},
	{"dev", "dev://PATH (a development key, made at first use)", file.OpenDev, true},
}

func knownURIs() string {
	var forms []string
	for _, s := range stores {
		forms = append(forms, s.form)
	}
	return strings.Join(forms, ", ")
}

var schemeShape = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,31}$`)

// Open returns the signer of the P-256 key that a URI names:
//
//	gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N   Google Cloud KMS
//	awskms:///ARN-or-key-id   AWS KMS
//	pkcs11:token=…;object=…   an HSM by its PKCS#11 module (RFC 7512)
//	file://PATH   a private key in PEM, PKCS#8 or SEC1, that only its owner may read
//	dev://PATH    a development key that all binaries of a machine share, made at first use
//
// The path of file and dev begins after the two slashes, is relative or absolute
// (file:///etc/key.pem), and is not percent-decoded. ctx bounds the calls to a
// remote provider.
//
// Open makes one trial signature. So a key without permission to sign fails at the start
// and not at the first deal. Errors MUST NOT show a PIN or a URI that may contain one.
func Open(ctx context.Context, uri string) (*Signer, error) {
	return open(ctx, uri, defaultLimits)
}

// PublicKeyOf returns the label of the P-256 key that a URI names. It needs
// permission to read the public key, not to sign.
func PublicKeyOf(ctx context.Context, uri string) (string, error) {
	p, _, err := openProvider(ctx, uri, provider.P256)
	if err != nil {
		return "", err
	}
	_, label, _, err := readP256(ctx, p, defaultLimits)
	return label, errors.Join(err, p.Close())
}

func open(ctx context.Context, uri string, l limits) (*Signer, error) {
	p, from, err := openProvider(ctx, uri, provider.P256)
	if err != nil {
		return nil, err
	}
	s, err := newSigner(ctx, p, from, l)
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	if _, err := s.Sign(ctx, trial); err != nil {
		_ = s.Close()
		if from.scheme == "pkcs11" && errors.Is(err, ErrProvider) {
			err = fmt.Errorf("the private and the public key object of that name do not match; regenerate the pair or name the pair with id=: %w", err)
		}
		return nil, fmt.Errorf("the signing key was found but does not sign: %w", err)
	}
	return s, nil
}

func openProvider(ctx context.Context, uri string, kind provider.Kind) (provider.Provider, store, error) {
	if err := ctx.Err(); err != nil {
		return nil, store{}, fmt.Errorf("open signer: %w", err)
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || !schemeShape.MatchString(scheme) {
		return nil, store{}, errors.New("the signer URI has no scheme: use " + knownURIs())
	}
	i := slices.IndexFunc(stores, func(s store) bool { return s.scheme == scheme })
	if i < 0 {
		return nil, store{}, fmt.Errorf("the signer scheme %q is not known: use %s", scheme, knownURIs())
	}
	p, err := stores[i].open(ctx, rest, kind)
	return p, stores[i], err
}

// trial is the digest that a key signs when it is opened. No certificate and no
// tree head has this digest.
var trial = sha256.Sum256([]byte("fairpact/start-up-check: neither a certificate nor a tree head"))

func readP256(ctx context.Context, p provider.Provider, l limits) (public *ecdsa.PublicKey, label, custody string, err error) {
	read, err := retry(ctx, l.tries, provider.IsTransient, func() (read crypto.PublicKey, err error) {
		read, custody, err = p.Key(ctx)
		return read, err
	})
	if err != nil {
		return nil, "", "", err
	}
	public, _ = read.(*ecdsa.PublicKey)
	if label, err = es256Label(public); err != nil {
		return nil, "", "", fmt.Errorf("the signing key (%s) cannot be used: %w", custody, err)
	}
	return public, label, custody, nil
}
