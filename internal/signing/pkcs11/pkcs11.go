//go:build pkcs11 && cgo

package pkcs11

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"math/big"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// Provider is a key in a PKCS#11 token. The mutex of its library guards its fields.
type Provider struct {
	at      address
	library *library
	uses    bool // counts as a user of library
	closed  bool

	// Of a login, which stands while epoch is that of the library.
	epoch   int
	session cryptoki.SessionHandle
	key     cryptoki.ObjectHandle

	kind    kind
	public  publicKey // of the first login; others must find the same
	custody string

	// rejected is the SHA-256 of a PIN that the token refused. It is never offered
	// again, as a few wrong ones lock a token.
	rejected [sha256.Size]byte
}

// kind is what a key must be for its purpose.
type kind struct {
	keyType   uint // CKA_KEY_TYPE
	mechanism uint // of its signatures
	need      string
	parse     func(params, point []byte) (publicKey, error) // CKA_EC_PARAMS and CKA_EC_POINT
}

// publicKey is as of package crypto.
type publicKey interface{ Equal(crypto.PublicKey) bool }

// Open returns the provider of the key that a PKCS#11 URI names; rest is what
// follows its scheme and colon. The token is first used by Key.
func Open(_ context.Context, rest string) (*Provider, error) { return open(rest, p256) }

func open(rest string, k kind) (*Provider, error) {
	at, err := parse(rest)
	if err != nil {
		return nil, err
	}
	return &Provider{at: at, library: libraryAt(at.module), kind: k}, nil
}

// Key logs in to the token and finds the key, while ctx lasts.
func (p *Provider) Key(ctx context.Context) (*ecdsa.PublicKey, string, error) {
	if err := p.library.call(ctx, p.at.token, p.connect); err != nil {
		return nil, "", err
	}
	return p.public.(*ecdsa.PublicKey), p.custody, nil // as its kind parses it
}

// connect logs in unless a login stands. A token that was there before may have
// been away: the library is restarted then.
func (p *Provider) connect() error {
	switch {
	case p.closed:
		return errors.New("the key is closed")
	case !p.uses:
		if err := p.library.use(); err != nil {
			return err
		}
		p.uses = true
	case p.epoch == p.library.epoch:
		return nil
	}
	err := p.logIn()
	if p.public != nil && transient.Is(err) {
		if err = p.library.restart(); err == nil {
			err = p.logIn()
		}
	}
	return err
}

// drop logs out.
func (p *Provider) drop() {
	if p.uses && p.epoch == p.library.epoch {
		_ = p.library.CloseSession(p.session)
	}
	p.epoch = 0
}

// Sign signs a digest.
func (p *Provider) Sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	raw, err := p.sign(ctx, digest[:])
	if err != nil {
		return nil, err
	}
	// r and s, of equal lengths (PKCS#11 2.3.1). Signer checks the values.
	half := len(raw) / 2
	return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
}

// sign waits for its turn and for the library, whatever ctx says: so the caller
// knows how many calls hang.
func (p *Provider) sign(ctx context.Context, data []byte) ([]byte, error) {
	p.library.mu.Lock()
	defer p.library.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.connect(); err != nil {
		return nil, err
	}
	var raw []byte
	err := p.library.SignInit(p.session, []*cryptoki.Mechanism{cryptoki.NewMechanism(p.kind.mechanism, nil)}, p.key)
	if err == nil {
		raw, err = p.library.Sign(p.session, data)
	}
	if err != nil {
		p.drop() // the session may be in any state
		return nil, explain("sign", err)
	}
	return raw, nil
}

// Close ends the session, which logs out with the last one of the token (PKCS#11
// 5.6.2). It does not wait long for a library that hangs; what that still opens is
// closed when it answers.
func (p *Provider) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return p.library.call(ctx, p.at.token, func() error {
		p.drop()
		if p.uses {
			p.library.release()
		}
		p.uses, p.closed = false, true
		return nil
	})
}
