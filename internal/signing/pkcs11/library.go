//go:build pkcs11 && cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// library is a PKCS#11 library, by its path. C_Initialize and C_Finalize are the
// whole process's, so the providers of one library share it. It is loaded with its
// first user, finalized with its last one, and never unloaded.
type library struct {
	path string

	// mu is held during every call of the library, and guards what follows and its
	// Providers. A token signs in about a millisecond, mostly one after the other
	// whoever asks; and libraries differ in what they stand of several threads
	// (SoftHSM 2.6 crashes when a session at work is closed).
	mu            sync.Mutex
	*cryptoki.Ctx // nil: not loaded
	users         int
	epoch         int // counts its starts, from 1; handles are those of one epoch
}

var libraries sync.Map // of *library, by path

// libraryAt returns the one library of a file.
func libraryAt(path string) *library {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	}
	l, _ := libraries.LoadOrStore(path, &library{path: path})
	return l.(*library)
}

// call runs do with mu held, while ctx lasts. A library knows no context: one that
// hangs keeps mu, and so every later call of it.
func (l *library) call(ctx context.Context, token string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		done <- do()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the token %q does not answer: %w; see whether its own tool reaches it (pkcs11-tool --module … --list-slots)", token, ctx.Err())
	}
}

// use adds a user to the library, which is loaded and started for the first one.
func (l *library) use() error {
	if l.Ctx == nil {
		if _, err := os.Stat(l.path); err != nil {
			return fmt.Errorf("module-path: %w: install the token's PKCS#11 library (SoftHSM: apt-get install softhsm2) and name its file", err)
		}
		if l.Ctx = cryptoki.New(l.path); l.Ctx == nil {
			return fmt.Errorf("module-path %s: not a PKCS#11 library that loads here: `ldd %s` shows whether it is one for this machine and what it misses", l.path, l.path)
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

// restart ends all sessions: some libraries see a token that came back only then.
func (l *library) restart() error {
	_ = l.Finalize()
	return l.start()
}

func (l *library) release() {
	if l.users--; l.users == 0 {
		_ = l.Finalize()
	}
}

// explain adds the failed step, the meaning of the code and what to do, and marks
// what a new login may get past.
func explain(step string, err error) error {
	code, _ := errors.AsType[cryptoki.Error](err)
	passing, words := false, ""
	switch uint(code) {
	case cryptoki.CKR_PIN_INCORRECT:
		words = "the token refused the PIN; it is not tried again, for a few wrong ones lock a token: put the right PIN into the file of pin-source and restart"
	case cryptoki.CKR_PIN_INVALID, cryptoki.CKR_PIN_LEN_RANGE:
		words = "the PIN is too short, too long or has characters that the token does not take: correct the file of pin-source"
	case cryptoki.CKR_PIN_EXPIRED:
		words = "the PIN has expired: set a new one by the token's own tool, and in the file of pin-source"
	case cryptoki.CKR_PIN_LOCKED, cryptoki.CKR_USER_PIN_NOT_INITIALIZED:
		words = "the user PIN is locked after too many wrong ones, or there is none yet: the token's security officer must set a new one"
	case cryptoki.CKR_MECHANISM_INVALID, cryptoki.CKR_KEY_TYPE_INCONSISTENT, cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED:
		words = "the token does not sign with this key, by CKM_ECDSA with a P-256 key or by CKM_EDDSA with a log key: it needs CKA_SIGN, and a token that has the mechanism (pkcs11-tool --list-mechanisms)"
	case cryptoki.CKR_CANT_LOCK:
		words = "the library cannot be used by several threads, which is needed here"
	case cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT, cryptoki.CKR_TOKEN_NOT_RECOGNIZED, cryptoki.CKR_SLOT_ID_INVALID:
		passing, words = true, "the token is away: connect it again"
	case cryptoki.CKR_SESSION_COUNT, cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_HOST_MEMORY:
		passing, words = true, "the token has no session or memory left: run fewer clients of it"
	case cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_FUNCTION_FAILED, cryptoki.CKR_GENERAL_ERROR:
		passing, words = true, "the token or its library failed: look at its own log"
	case cryptoki.CKR_CRYPTOKI_NOT_INITIALIZED, cryptoki.CKR_SESSION_HANDLE_INVALID, cryptoki.CKR_SESSION_CLOSED,
		cryptoki.CKR_USER_NOT_LOGGED_IN, cryptoki.CKR_KEY_HANDLE_INVALID, cryptoki.CKR_OBJECT_HANDLE_INVALID,
		cryptoki.CKR_OPERATION_ACTIVE, cryptoki.CKR_OPERATION_NOT_INITIALIZED:
		passing, words = true, "the login ended: a new one follows"
	default:
		return fmt.Errorf("%s: %w", step, err)
	}
	err = fmt.Errorf("%s: %s (%w)", step, words, err)
	if passing {
		return transient.Error(err)
	}
	return err
}
