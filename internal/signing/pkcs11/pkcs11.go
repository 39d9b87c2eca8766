//go:build pkcs11 && cgo

package pkcs11

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// key is a key in a PKCS#11 token. Its fields are guarded by library.mu.
type key struct {
	form
	at      address
	library *library
	uses    bool // counts as a user of library
	closed  bool

	// The login. It is valid while epoch equals library.epoch.
	epoch   int
	session cryptoki.SessionHandle
	object  cryptoki.ObjectHandle // the private key

	public  publicKey // from the first login; later logins MUST find the same
	custody string

	// rejected is the SHA-256 of a PIN that the token refused. That PIN is never
	// sent again, because a few wrong ones lock a token.
	rejected [sha256.Size]byte
}

// Open returns the provider of the key that a PKCS#11 URI names. rest is the URI
// after its scheme and colon. Key makes the first use of the token.
func Open(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	at, err := parse(rest)
	if err != nil {
		return nil, err
	}
	return &key{form: forms[kind], at: at, library: libraryAt(at.module)}, nil
}

// Key implements provider.Provider. It logs in to the token and finds the key.
func (k *key) Key(ctx context.Context) (crypto.PublicKey, string, error) {
	if err := k.library.call(ctx, k.at.token, k.connect); err != nil {
		return nil, "", err
	}
	return k.public, k.custody, nil
}

// connect logs in unless the login is valid. If the token was there before, it may
// have been removed and put back: connect then restarts the library.
func (k *key) connect() error {
	switch {
	case k.closed:
		return errors.New("the key is closed")
	case !k.uses:
		if err := k.library.use(); err != nil {
			return err
		}
		k.uses = true
	case k.epoch == k.library.epoch:
		return nil
	}
	err := k.logIn()
	if k.public != nil && provider.IsTransient(err) {
		if err = k.library.restart(); err == nil {
			err = k.logIn()
		}
	}
	return err
}

// drop ends the login.
func (k *key) drop() {
	if k.uses && k.epoch == k.library.epoch {
		_ = k.library.CloseSession(k.session)
	}
	k.epoch = 0
}

// Sign implements provider.Provider. It waits for library.mu and for the library
// even after ctx has ended, so that its caller knows how many calls hang.
func (k *key) Sign(ctx context.Context, data []byte) ([]byte, error) {
	k.library.mu.Lock()
	defer k.library.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := k.connect(); err != nil {
		return nil, err
	}
	var raw []byte
	err := k.library.SignInit(k.session, []*cryptoki.Mechanism{cryptoki.NewMechanism(k.mechanism, nil)}, k.object)
	if err == nil {
		raw, err = k.library.Sign(k.session, data)
	}
	if err != nil {
		k.drop() // the session's state is unknown
		return nil, explain("sign", err)
	}
	return k.signature(raw)
}

// Close implements provider.Provider. It ends the session; closing the token's
// last session logs out (PKCS#11 5.6.2). It waits 1 s for a library that hangs:
// the session is then closed as soon as the library answers.
func (k *key) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return k.library.call(ctx, k.at.token, func() error {
		k.drop()
		if k.uses {
			k.library.release()
		}
		k.uses, k.closed = false, true
		return nil
	})
}
