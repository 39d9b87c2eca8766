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

	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing/awskms"
	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/gcpkms"
	"github.com/fairpact/fairpact/internal/signing/pkcs11"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

type store struct {
	scheme    string
	form      string
	open      func(ctx context.Context, rest string, kind provider.Kind) (provider.Provider, error)
	ephemeral bool // true for development keys, which the service itself makes
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
//	pkcs11:token=…;object=…   an HSM, through its PKCS#11 library (URI form: RFC 7512)
//	file://PATH   a PEM file with a PKCS#8 or SEC1 private key; only the file's owner may have access
//	dev://PATH    a development key that all binaries of a machine share, made at first use
//
// The path of a file or dev URI begins after the two slashes. It is relative or absolute
// (file:///etc/key.pem), and is not percent-decoded. ctx bounds the calls to a KMS or an HSM.
//
// Open makes one trial signature, so that a missing permission to sign is found at
// start-up, not at the first deal. Errors MUST NOT show a PIN, or a URI that may contain a PIN.
func Open(ctx context.Context, uri string) (*Signer, error) {
	return open(ctx, uri, defaultLimits)
}

// PublicKeyOf returns the es256 label of the public key. The URI must name a P-256 key.
// The process needs permission to read the public key, but not to sign.
func PublicKeyOf(ctx context.Context, uri string) (string, error) {
	p, _, err := openProvider(ctx, uri, provider.P256)
	if err != nil {
		return "", err
	}
	key, _, err := readP256(ctx, p, defaultLimits)
	return key.Label, errors.Join(err, p.Close())
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
			err = fmt.Errorf("%w; the URI probably selects the private key of one pair and the public key of another: add id= with the id of one key pair to the URI, or regenerate the pair", err)
		}
		return nil, fmt.Errorf("the signing key was found but does not sign: %w", err)
	}
	return s, nil
}

func openProvider(ctx context.Context, uri string, kind provider.Kind) (provider.Provider, store, error) {
	if err := ctx.Err(); err != nil {
		return nil, store{}, fmt.Errorf("cannot open the signer: %w", err)
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || !schemeShape.MatchString(scheme) {
		return nil, store{}, errors.New("the signer URI has no valid scheme: use one of " + knownURIs())
	}
	i := slices.IndexFunc(stores, func(s store) bool { return s.scheme == scheme })
	if i < 0 {
		return nil, store{}, fmt.Errorf("the scheme %q of the signer URI is not known: use one of %s", scheme, knownURIs())
	}
	p, err := stores[i].open(ctx, rest, kind)
	return p, stores[i], err
}

// trial is the digest that Open and OpenLogKey sign to test a key. No certificate and no tree
// head has this digest, so the signature cannot be misused.
var trial = sha256.Sum256([]byte("fairpact/start-up-check: neither a certificate nor a tree head"))

func readP256(ctx context.Context, p provider.Provider, l limits) (key keys.Key, custody string, err error) {
	read, err := retry(ctx, l.tries, provider.IsTransient, func() (read crypto.PublicKey, err error) {
		read, custody, err = p.Key(ctx)
		return read, err
	})
	if err != nil {
		return keys.Key{}, "", err
	}
	public, _ := read.(*ecdsa.PublicKey)
	label, err := keys.Label(public)
	if err == nil {
		key, err = keys.New(label)
	}
	if err != nil {
		return keys.Key{}, "", fmt.Errorf("the signing key (%s) cannot be used: %w", custody, err)
	}
	return key, custody, nil
}
