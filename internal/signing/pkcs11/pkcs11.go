//go:build pkcs11 && cgo

package pkcs11

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"sync"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// Provider is a key in a PKCS#11 token.
type Provider struct {
	at address

	// mu guards the fields below. A login holds it, and a library that hangs holds
	// it for ever.
	mu      sync.Mutex
	library *library
	login   *login           // nil while the token has to be logged in to
	public  *ecdsa.PublicKey // of the first login

	// rejected is the SHA-256 of a PIN that the token refused. It is never offered
	// again, as a few wrong ones lock a token.
	rejected [sha256.Size]byte
}

// Open returns the provider of the key that a PKCS#11 URI names; rest is what
// follows its scheme and colon. The token is first used by Key.
func Open(_ context.Context, rest string) (*Provider, error) {
	at, err := parse(rest)
	if err != nil {
		return nil, err
	}
	return &Provider{at: at}, nil
}

// Key logs in to the token and finds the key, while ctx lasts. A library knows no
// context: one that hangs keeps its goroutine, and what it opens too late is
// closed.
func (p *Provider) Key(ctx context.Context) (*ecdsa.PublicKey, string, error) {
	type answer struct {
		login *login
		err   error
	}
	answered := make(chan answer)
	go func() {
		p.mu.Lock()
		l, err := p.connect()
		p.mu.Unlock()
		select {
		case answered <- answer{l, err}:
		case <-ctx.Done():
			_ = p.Close()
		}
	}()
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, "", a.err
		}
		return a.login.public, a.login.custody, nil
	case <-ctx.Done():
		return nil, "", fmt.Errorf("the token %q does not answer: %w; see whether its own tool reaches it (pkcs11-tool --module … --list-slots)", p.at.token, ctx.Err())
	}
}

// connect returns the login that stands, or logs in. The caller holds mu.
func (p *Provider) connect() (*login, error) {
	if p.login != nil {
		return p.login, nil
	}
	var err error
	if p.library == nil {
		if p.library, err = load(p.at.module); err != nil {
			return nil, err
		}
	}
	l, err := p.logIn()
	if p.public != nil && transient.Is(err) {
		// Some libraries see a token that came back only after a restart.
		if err = p.library.restart(); err == nil {
			l, err = p.logIn()
		}
	}
	if err != nil {
		return nil, err
	}
	if p.public != nil && !p.public.Equal(l.public) {
		l.end()
		return nil, fmt.Errorf("the token %q now holds another key under that name: put the old one back, or restart with the new key published", p.at.token)
	}
	p.login, p.public = l, l.public
	return l, nil
}

// Sign signs in a session that no other call uses. Whatever goes wrong, the
// session may be in any state: all of the login are given up, and the next call
// logs in anew.
func (p *Provider) Sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	p.mu.Lock()
	if err := ctx.Err(); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	l, err := p.connect()
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var session cryptoki.SessionHandle
	select {
	case s, ok := <-l.idle:
		if !ok {
			return nil, transient.Error(errors.New("the sessions of the token ended"))
		}
		session = s
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	raw, err := l.sign(session, digest)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.login == l && err == nil {
		l.idle <- session
	} else {
		l.close(session)
	}
	if err != nil {
		if p.login == l {
			p.login = nil
			l.end()
		}
		return nil, explain("sign", err)
	}
	// r and s, of equal lengths (PKCS#11 2.3.1). Signer checks the values.
	half := len(raw) / 2
	return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
}

// Close ends the sessions, which logs out with the last one (PKCS#11 5.6.2). It
// does not wait for a login that hangs: Key closes what that opens.
func (p *Provider) Close() error {
	if !p.mu.TryLock() {
		return nil
	}
	defer p.mu.Unlock()
	if p.login != nil {
		p.login.end()
	}
	if p.library != nil {
		p.library.release()
	}
	p.login, p.library = nil, nil
	return nil
}
