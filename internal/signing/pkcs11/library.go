//go:build pkcs11 && cgo

package pkcs11

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"
	"sync"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// library is a loaded PKCS#11 library. C_Initialize and C_Finalize are the whole
// process's, so the providers of one library share it. It is finalized with its
// last user and never unloaded.
//
// Invariant: a handle is used only in the epoch that it is of, under a read lock
// of calls, as in another epoch it may be that of a new session or object.
type library struct {
	*cryptoki.Ctx
	users int // guarded by libraries.mu

	calls sync.RWMutex // only ever tried for writing, so that a read lock never waits
	epoch int          // of calls; a restart begins a new one
}

var libraries = struct {
	mu     sync.Mutex
	byPath map[string]*library
}{byPath: map[string]*library{}}

// load returns the library at path, initialized.
func load(path string) (*library, error) {
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	l := libraries.byPath[path]
	if l == nil {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("module-path: %w: install the token's PKCS#11 library (SoftHSM: apt-get install softhsm2) and name its file", err)
		}
		ctx := cryptoki.New(path)
		if ctx == nil {
			return nil, fmt.Errorf("module-path %s: not a PKCS#11 library that loads here: `ldd %s` shows whether it is one for this machine and what it misses", path, path)
		}
		l = &library{Ctx: ctx}
		libraries.byPath[path] = l
	}
	if l.users == 0 {
		if err := l.Initialize(); err != nil && !errors.Is(err, cryptoki.Error(cryptoki.CKR_CRYPTOKI_ALREADY_INITIALIZED)) {
			return nil, explain("start the library", err)
		}
	}
	l.users++
	return l, nil
}

func (l *library) release() {
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	if l.users--; l.users == 0 {
		_ = l.Finalize()
	}
}

// restart finalizes and initializes the library, unless calls are under way.
// Every login in it has ended then.
func (l *library) restart() error {
	if !l.calls.TryLock() {
		return transient.Error(errors.New("the library is busy and cannot be restarted yet"))
	}
	defer l.calls.Unlock()
	l.epoch++
	_ = l.Finalize()
	if err := l.Initialize(); err != nil {
		return transient.Error(explain("restart the library", err))
	}
	return nil
}

// login is sessions on a token that is logged in to, and the key in them.
type login struct {
	library *library
	epoch   int
	key     cryptoki.ObjectHandle
	public  *ecdsa.PublicKey
	custody string
	idle    chan cryptoki.SessionHandle // closed when the login is given up
}

func (l *login) sign(session cryptoki.SessionHandle, digest [32]byte) ([]byte, error) {
	l.library.calls.RLock()
	defer l.library.calls.RUnlock()
	if l.library.epoch != l.epoch {
		return nil, cryptoki.Error(cryptoki.CKR_SESSION_HANDLE_INVALID)
	}
	if err := l.library.SignInit(session, []*cryptoki.Mechanism{cryptoki.NewMechanism(cryptoki.CKM_ECDSA, nil)}, l.key); err != nil {
		return nil, err
	}
	return l.library.Sign(session, digest[:])
}

func (l *login) close(session cryptoki.SessionHandle) {
	l.library.calls.RLock()
	defer l.library.calls.RUnlock()
	if l.library.epoch == l.epoch {
		_ = l.library.CloseSession(session)
	}
}

// end closes the idle sessions. Whoever uses another one closes it.
func (l *login) end() {
	close(l.idle)
	for session := range l.idle {
		l.close(session)
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
		words = "the token does not sign by CKM_ECDSA with this key: es256 needs a P-256 key with CKA_SIGN"
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
