package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing/awskms"
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
	{"file", "file://PATH (a private key in PEM)", openFile, false},
	{"dev", "dev://PATH (a development key, made at first use)", openDev, true},
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

// PublicKeyOf returns the label of the P-256 key that a URI names. It needs no permission to sign.
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

// trial is signed to test a key. It is the digest of no certificate or tree head.
var trial = sha256.Sum256([]byte("fairpact/start-up-check: neither a certificate nor a tree head"))

func readKey(ctx context.Context, p provider.Provider, l limits) (public crypto.PublicKey, custody string, err error) {
	public, err = retry(ctx, l.tries, provider.IsTransient, func() (read crypto.PublicKey, err error) {
		read, custody, err = p.Key(ctx)
		return read, err
	})
	return public, custody, err
}

func readP256(ctx context.Context, p provider.Provider, l limits) (key keys.Key, custody string, err error) {
	read, custody, err := readKey(ctx, p, l)
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

// LogKey is an Ed25519 key of the log, which signs checkpoints. A LogKey is safe for concurrent use.
type LogKey struct {
	provider provider.Provider
	scheme   string
	public   ed25519.PublicKey
	custody  string
}

// OpenLogKey returns the Ed25519 key that a URI names (see Open), after one trial signature.
func OpenLogKey(ctx context.Context, uri string) (*LogKey, error) {
	p, from, err := openProvider(ctx, uri, provider.Ed25519)
	if err != nil {
		return nil, err
	}
	startCounting(from.scheme, logKey)
	public, custody, err := readKey(ctx, p, defaultLimits)
	k := &LogKey{provider: p, scheme: from.scheme, custody: custody}
	if err == nil {
		var is bool
		if k.public, is = public.(ed25519.PublicKey); !is {
			err = fmt.Errorf("the log key (%s) is not an Ed25519 key: give the URI of an Ed25519 key", custody)
		} else if _, err = k.Sign(ctx, trial[:]); err != nil {
			err = fmt.Errorf("the log key was found but does not sign: %w", err)
		}
	}
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return k, nil
}

// Public returns the public key.
func (k *LogKey) Public() ed25519.PublicKey { return k.public }

// Custody says in words where the key is kept.
func (k *LogKey) Custody() string { return k.custody }

// Sign returns a verified signature of the message (RFC 8032). It retries transient failures.
func (k *LogKey) Sign(ctx context.Context, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultLimits.deadline)
	defer cancel()
	signature, err := retry(ctx, defaultLimits.tries, provider.IsTransient, func() ([]byte, error) {
		signature, err := ask(ctx, k.provider, message, callSeconds.WithLabelValues(k.scheme, logKey))
		if err == nil && !ed25519.Verify(k.public, message, signature) {
			return nil, fmt.Errorf("the log key: %w", ErrProvider)
		}
		return signature, err
	})
	if provider.IsTransient(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	requests.WithLabelValues(k.scheme, logKey, outcome(err)).Inc()
	return signature, err
}

// Close releases the provider's connections and sessions.
func (k *LogKey) Close() error { return k.provider.Close() }

// Pauses are random, so that callers that failed together do not retry together.
const (
	firstCeiling = 100 * time.Millisecond
	lastCeiling  = 800 * time.Millisecond
)

// retry returns the result of the last call. It calls at most `tries` times.
func retry[T any](ctx context.Context, tries int, retryable func(error) bool, call func() (T, error)) (T, error) {
	for ceiling := firstCeiling; ; ceiling = min(2*ceiling, lastCeiling) {
		result, err := call()
		if tries--; err == nil || tries == 0 || !retryable(err) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(rand.N(ceiling)):
		}
	}
}

var breakerOpen = telemetry.NewGaugeVec("fairpact_signing_breaker_open",
	"1 while the circuit breaker is open: several calls to the key's provider failed in a row, so signing fails immediately, without a call to the provider.", "provider")

// breaker is a circuit breaker: while a provider is down, calls fail without reaching it. Transient
// failures and invalid signatures count as failures. A refusal (no permission, a disabled key) does
// not, because the provider is up.
type breaker struct {
	circuit *gobreaker.CircuitBreaker[string]
	cause   atomic.Value // string: the text of the newest failure that counted
}

// uncounted marks a failure that says nothing about the provider: the caller gave up or
// allowed too little time, or all slots for concurrent calls stayed busy.
type uncounted struct{ error }

func (u uncounted) Unwrap() error { return u.error }

func newBreaker(scheme string, l limits) *breaker {
	gauge := breakerOpen.WithLabelValues(scheme)
	gauge.Set(0)
	return &breaker{circuit: gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     l.open,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= l.trip },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch gobreaker.StateClosed {
			case from:
				gauge.Set(1)
			case to:
				gauge.Set(0)
			}
		},
		IsSuccessful: func(err error) bool { return !failed(err) },
		IsExcluded:   excluded,
	})}
}

func failed(err error) bool {
	return !excluded(err) && (provider.IsTransient(err) || errors.Is(err, ErrProvider))
}

func excluded(err error) bool {
	_, is := errors.AsType[uncounted](err)
	return is || errors.Is(err, errClosed)
}

// call runs f if the breaker permits it, or returns ErrUnavailable.
func (b *breaker) call(f func() (string, error)) (string, error) {
	signature, err := b.circuit.Execute(func() (string, error) {
		signature, err := f()
		if failed(err) {
			b.cause.Store(err.Error())
		}
		return signature, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		// The error shows the text of the cause, but does not wrap it: it is the error of an earlier call.
		return "", fmt.Errorf("%w: the provider was not called, because it failed several times in a row; the last failure: %v", ErrUnavailable, b.cause.Load())
	}
	return signature, err
}
