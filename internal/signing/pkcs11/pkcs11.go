//go:build pkcs11 && cgo

package pkcs11

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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

func init() {
	newProvider = func(at address, kind provider.Kind) provider.Provider {
		return &key{form: forms[kind], at: at, library: libraryAt(at.module)}
	}
}

func (k *key) Key(ctx context.Context) (crypto.PublicKey, string, error) {
	if err := k.library.call(ctx, k.at.token, k.connect); err != nil {
		return nil, "", err
	}
	return k.public, k.custody, nil
}

// connect logs in, unless the previous login is still valid. If a token that was there fails now, it may
// have been removed and put back: connect then restarts the library and logs in once more.
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

// Close ends the session; the token logs out when its last session ends (PKCS#11 5.6.2). If the library
// hangs, Close returns after 1 s, and the session ends as soon as the library answers.
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

// library is a PKCS#11 library, shared by all keys that use its file, because C_Initialize and C_Finalize
// affect the whole process.
type library struct {
	path string

	// lock is a mutex: it contains one element while a call into the library runs. It is a
	// channel, so that a caller can stop waiting when its context ends. lock guards the fields
	// below and the fields of the library's keys. Calls never run in parallel, because
	// SoftHSM 2.6 crashes when a session is closed while the session signs.
	lock          chan struct{}
	*cryptoki.Ctx     // nil until the library is loaded
	users         int // number of keys that use the library
	epoch         int // number of starts; handles from an earlier epoch are invalid

	// refused has the PINs that a token refused. offerPIN never sends such a PIN to the same
	// token again, for any key. A few wrong PINs lock a token, and a signing.Ring tries to
	// open a key every 30 s until the key opens.
	refused map[rejectedPIN]bool
}

type rejectedPIN struct {
	manufacturer, model, serial, label string
	pin                                [sha256.Size]byte
}

var libraries sync.Map

// libraryAt returns the library of a file, and the same library for a symbolic link to that file.
func libraryAt(path string) *library {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	}
	l, _ := libraries.LoadOrStore(path, &library{path: path, lock: make(chan struct{}, 1), refused: map[rejectedPIN]bool{}})
	return l.(*library)
}

// call runs f with the lock held. It returns when f returns or ctx ends. A library cannot be
// interrupted: if f hangs, it keeps the lock, and later calls fail when their contexts end.
func (l *library) call(ctx context.Context, token string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	select {
	case l.lock <- struct{}{}:
		go func() {
			defer func() { <-l.lock }()
			done <- f()
		}()
	case <-ctx.Done(): // f is never called, so nothing is sent to done
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the token %q does not answer: %w: check the token with `pkcs11-tool --module MODULE_PATH --list-slots`", token, ctx.Err())
	}
}

func (l *library) use() error {
	if l.Ctx == nil {
		if _, err := os.Stat(l.path); err != nil {
			return fmt.Errorf("module-path: %w: install the token's PKCS#11 library (SoftHSM: apt-get install softhsm2) and set module-path to the library file", err)
		}
		if l.Ctx = cryptoki.New(l.path); l.Ctx == nil {
			return fmt.Errorf("module-path %s: cannot be loaded as a PKCS#11 library: run `ldd %s` to see whether the file is built for this machine and which libraries are missing", l.path, l.path)
		}
	}
	if l.users == 0 {
		if err := l.start(); err != nil {
			return err
		}
	}
	l.users++
	return nil
}

func (l *library) start() error {
	l.epoch++
	if err := l.Initialize(); err != nil && !errors.Is(err, cryptoki.Error(cryptoki.CKR_CRYPTOKI_ALREADY_INITIALIZED)) {
		return explain("start the library", err)
	}
	return nil
}

// restart finalizes the library and starts it again, which ends all sessions. Without a
// restart, some libraries do not see a token that was removed and put back.
func (l *library) restart() error {
	_ = l.Finalize()
	return l.start()
}

func (l *library) release() {
	if l.users--; l.users == 0 {
		_ = l.Finalize()
	}
}

// explain adds the failed step to err, and what a known PKCS#11 code means and what to do.
func explain(step string, err error) error {
	code, _ := errors.AsType[cryptoki.Error](err)
	passing, words := false, ""
	switch uint(code) {
	case cryptoki.CKR_PIN_INCORRECT:
		words = "the token refused the PIN; the PIN is not tried again, because a few wrong PINs lock a token: put the right PIN into the pin-source file and restart the service"
	case cryptoki.CKR_PIN_INVALID, cryptoki.CKR_PIN_LEN_RANGE:
		words = "the PIN is too short, is too long, or has characters that the token does not accept: correct the PIN in the pin-source file"
	case cryptoki.CKR_PIN_EXPIRED:
		words = "the PIN has expired: set a new PIN with the token's own tool and write it into the pin-source file"
	case cryptoki.CKR_PIN_LOCKED, cryptoki.CKR_USER_PIN_NOT_INITIALIZED:
		words = "the user PIN is locked after too many wrong tries, or was never set: ask the token's security officer to set a user PIN"
	case cryptoki.CKR_MECHANISM_INVALID, cryptoki.CKR_KEY_TYPE_INCONSISTENT, cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED:
		words = "the token cannot sign with this key: use a key with CKA_SIGN, and a token that supports CKM_ECDSA (for a P-256 key) or CKM_EDDSA (for a log key); check the token with `pkcs11-tool --list-mechanisms`"
	case cryptoki.CKR_CANT_LOCK:
		words = "the library does not support calls from several threads: use a library that does"
	case cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT, cryptoki.CKR_TOKEN_NOT_RECOGNIZED, cryptoki.CKR_SLOT_ID_INVALID:
		passing, words = true, "the token is not there: connect it again"
	case cryptoki.CKR_SESSION_COUNT, cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_HOST_MEMORY:
		passing, words = true, "the token or this host has no session or memory left: run fewer clients of the token"
	case cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_FUNCTION_FAILED, cryptoki.CKR_GENERAL_ERROR:
		passing, words = true, "the token or its library failed: read the logs of the token and of the library"
	case cryptoki.CKR_CRYPTOKI_NOT_INITIALIZED, cryptoki.CKR_SESSION_HANDLE_INVALID, cryptoki.CKR_SESSION_CLOSED,
		cryptoki.CKR_USER_NOT_LOGGED_IN, cryptoki.CKR_KEY_HANDLE_INVALID, cryptoki.CKR_OBJECT_HANDLE_INVALID,
		cryptoki.CKR_OPERATION_ACTIVE, cryptoki.CKR_OPERATION_NOT_INITIALIZED:
		passing, words = true, "the session is no longer valid: no action needed, the service logs in again"
	default:
		return fmt.Errorf("cannot %s: %w", step, err)
	}
	err = fmt.Errorf("cannot %s: %s (%w)", step, words, err)
	if passing {
		return provider.Transient(err)
	}
	return err
}
