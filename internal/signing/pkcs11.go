//go:build pkcs11 && cgo

package signing

import (
	"context"
	"crypto/ecdsa"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"sync"

	"github.com/miekg/pkcs11"
)

// maxSessions is how many signatures one process asks of a token at once; a
// token may allow fewer.
const maxSessions = 8

// token signs with a private key that stays in a PKCS#11 token.
type token struct {
	uri    pkcs11URI
	module cryptoki
	public *ecdsa.PublicKey // pinned when the token was opened
	words  string

	mu sync.Mutex
	// link is nil while the token has to be logged in to again. rejected is the
	// SHA-256 of a PIN that the token refused: it is never offered twice, for a
	// few wrong ones lock a token. Both guarded by mu.
	link     *link
	rejected [32]byte
}

func openPKCS11(ctx context.Context, attributes string) (provider, error) {
	uri, err := parsePKCS11(attributes)
	if err != nil {
		return nil, err
	}
	return openWithin(ctx, uri, func() (cryptoki, error) { return loadModule(uri.modulePath) })
}

// openWithin opens the token while ctx lasts. A library knows no context: one
// that hangs keeps its goroutine, and what it opens too late is closed.
func openWithin(ctx context.Context, uri pkcs11URI, load func() (cryptoki, error)) (provider, error) {
	type opened struct {
		token *token
		err   error
	}
	done := make(chan opened)
	go func() {
		var o opened
		var module cryptoki
		if module, o.err = load(); o.err == nil {
			if o.token, o.err = openToken(uri, module); o.err != nil {
				o.err = errors.Join(o.err, module.release())
			}
		}
		select {
		case done <- o:
		case <-ctx.Done():
			if o.err == nil {
				_ = o.token.close()
			}
		}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, o.err
		}
		return o.token, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the token %q does not answer: %w; see whether its own tool reaches it (pkcs11-tool --module … --list-slots)", uri.token, ctx.Err())
	}
}

func openToken(uri pkcs11URI, module cryptoki) (*token, error) {
	p := &token{uri: uri, module: module}
	if err := p.connect(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *token) publicKey() *ecdsa.PublicKey { return p.public }
func (p *token) custody() string             { return p.words }
func (p *token) ephemeral() bool             { return false }

// close ends the sessions, which logs out with the last one (PKCS#11 5.6.2).
func (p *token) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	return p.module.release()
}

// connect logs in to the token and finds the key in it. The caller holds mu, or
// is alone.
func (p *token) connect() error {
	l, err := p.login()
	if err != nil && p.public != nil && isTransient(err) {
		if err = p.module.restart(); err == nil {
			l, err = p.login()
		}
	}
	if err != nil {
		return err
	}
	if p.public != nil && !p.public.Equal(l.public) {
		l.end()
		return fmt.Errorf("the token %q now holds another key under that name: put the old one back, or restart with the new key published", p.uri.token)
	}
	p.link, p.public, p.words = l, l.public, l.words
	return nil
}

// drop gives the link up. The caller holds mu.
func (p *token) drop() {
	if p.link != nil {
		p.link.end()
		p.link = nil
	}
}

func (p *token) sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	p.mu.Lock()
	var err error
	if err = ctx.Err(); err == nil && p.link == nil {
		err = p.connect()
	}
	l := p.link
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}

	var session pkcs11.SessionHandle
	select {
	case session = <-l.idle:
	case <-l.gone:
		return nil, transient{errors.New("the sessions of the token ended")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	raw, err := l.sign(session, digest)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		// Whatever went wrong, this session may be in any state: all are given up,
		// and the next call logs in anew.
		l.close(session)
		if p.link == l {
			p.drop()
		}
		return nil, inWords("sign", err)
	}
	if p.link == l {
		l.idle <- session
	} else {
		l.close(session)
	}
	if len(raw) != 64 {
		return nil, fmt.Errorf("%w: %d bytes where r and s take 64", ErrProvider, len(raw))
	}
	r, s := rawES256(raw)
	return asn1.Marshal(struct{ R, S *big.Int }{r, s})
}

// link is sessions on a token that are logged in, and the key's handle in them.
type link struct {
	module     cryptoki
	generation int // of the library, in which the sessions are valid
	key        pkcs11.ObjectHandle
	public     *ecdsa.PublicKey
	words      string
	idle       chan pkcs11.SessionHandle
	gone       chan struct{} // closed at the end
}

func (l *link) sign(session pkcs11.SessionHandle, digest [32]byte) ([]byte, error) {
	generation, leave := l.module.enter()
	defer leave()
	if generation != l.generation {
		return nil, pkcs11.Error(pkcs11.CKR_SESSION_HANDLE_INVALID)
	}
	err := l.module.SignInit(session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_ECDSA, nil)}, l.key)
	if err != nil {
		return nil, err
	}
	return l.module.Sign(session, digest[:])
}

// close closes a session, unless the library was restarted since.
func (l *link) close(session pkcs11.SessionHandle) {
	generation, leave := l.module.enter()
	defer leave()
	if generation == l.generation {
		_ = l.module.CloseSession(session)
	}
}

// end closes what is idle; a session at work is closed by whoever holds it.
func (l *link) end() {
	close(l.gone)
	for {
		select {
		case session := <-l.idle:
			l.close(session)
		default:
			return
		}
	}
}
