//go:build pkcs11 && cgo

package pkcs11

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// key is the provider.Provider of a key in a PKCS#11 token. library.lock guards its fields.
type key struct {
	form
	at      address
	library *library
	uses    bool // true if library.users counts this key
	closed  bool

	// logIn sets epoch, session and object. epoch is library.epoch (the number of starts of the
	// library) at the last login, or 0. While epoch equals library.epoch, session and object are valid.
	epoch   int
	session cryptoki.SessionHandle
	object  cryptoki.ObjectHandle // the private key

	public  publicKey // set by the first login; later logins MUST find the same public key
	custody string
}

// Open returns the provider of the key that a PKCS#11 URI names. rest is the URI
// without "pkcs11:". Open does not use the token; Key and Sign do.
func Open(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	at, err := parse(rest)
	if err != nil {
		return nil, err
	}
	return &key{form: forms[kind], at: at, library: libraryAt(at.module)}, nil
}

func (k *key) Key(ctx context.Context) (crypto.PublicKey, string, error) {
	if err := k.library.call(ctx, k.at.token, k.connect); err != nil {
		return nil, "", err
	}
	return k.public, k.custody, nil
}

// connect logs in, unless the previous login is still valid. If the key was found before
// and the new login fails with a transient error, the token may have been removed and put
// back. connect then restarts the library and logs in once more.
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

func (k *key) drop() {
	if k.uses && k.epoch == k.library.epoch {
		_ = k.library.CloseSession(k.session)
	}
	k.epoch = 0
}

func (k *key) Sign(ctx context.Context, data []byte) ([]byte, error) {
	var raw []byte
	if err := k.library.call(ctx, k.at.token, func() (err error) {
		raw, err = k.sign(data)
		return err
	}); err != nil {
		return nil, err // do not read raw: after a timeout, k.sign may still write to raw
	}
	return k.signature(raw)
}

func (k *key) sign(data []byte) (raw []byte, err error) {
	if err := k.connect(); err != nil {
		return nil, err
	}
	err = k.library.SignInit(k.session, []*cryptoki.Mechanism{cryptoki.NewMechanism(k.mechanism, nil)}, k.object)
	if err == nil {
		raw, err = k.library.Sign(k.session, data)
	}
	if err != nil {
		k.drop() // the session cannot be used again, because its state is unknown
		return nil, explain("sign", err)
	}
	return raw, nil
}

// Close implements provider.Provider. It ends the session. The token logs out when its
// last session ends (PKCS#11 5.6.2). If the library hangs, Close returns an error after
// 1 s, and the session ends as soon as the library answers.
func (k *key) Close() error {
	closed := make(chan error, 1)
	go func() {
		closed <- k.library.call(context.Background(), k.at.token, func() error {
			k.drop()
			if k.uses {
				k.library.release()
			}
			k.uses, k.closed = false, true
			return nil
		})
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(time.Second):
		return fmt.Errorf("the token %q does not answer: %w", k.at.token, context.DeadlineExceeded)
	}
}
