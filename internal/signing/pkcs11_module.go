//go:build pkcs11 && cgo

package signing

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/miekg/pkcs11"
)

// cryptoki is what is used of a PKCS#11 library. The tests put faults between.
type cryptoki interface {
	GetSlotList(tokenPresent bool) ([]uint, error)
	GetTokenInfo(slot uint) (pkcs11.TokenInfo, error)
	OpenSession(slot, flags uint) (pkcs11.SessionHandle, error)
	CloseSession(session pkcs11.SessionHandle) error
	Login(session pkcs11.SessionHandle, userType uint, pin string) error
	FindObjectsInit(session pkcs11.SessionHandle, template []*pkcs11.Attribute) error
	FindObjects(session pkcs11.SessionHandle, most int) ([]pkcs11.ObjectHandle, bool, error)
	FindObjectsFinal(session pkcs11.SessionHandle) error
	GetAttributeValue(session pkcs11.SessionHandle, object pkcs11.ObjectHandle, template []*pkcs11.Attribute) ([]*pkcs11.Attribute, error)
	SignInit(session pkcs11.SessionHandle, mechanism []*pkcs11.Mechanism, key pkcs11.ObjectHandle) error
	Sign(session pkcs11.SessionHandle, message []byte) ([]byte, error)
	// enter begins calls to the library, and leave ends them. A session is of the
	// generation that it was opened in, and MUST not be used or closed in another:
	// its handle may be that of a new session.
	enter() (generation int, leave func())
	// restart finalizes the library and initializes it anew, unless calls are under
	// way: some see a token that came back only then. A new generation begins; each
	// signer logs in again.
	restart() error
	// release ends one signer's use of the library.
	release() error
}

// library is a loaded PKCS#11 library. C_Initialize and C_Finalize are the whole
// process's, so its signers share one; it is never unloaded, only finalized.
type library struct {
	*pkcs11.Ctx
	users int // guarded by libraries.mu

	calls      sync.RWMutex // shared by calls, taken alone by a restart
	generation int          // guarded by calls
}

func (l *library) enter() (generation int, leave func()) {
	l.calls.RLock()
	return l.generation, l.calls.RUnlock
}

func (l *library) restart() error {
	if !l.calls.TryLock() {
		return transient{errors.New("the library is busy and cannot be started again yet")}
	}
	defer l.calls.Unlock()
	l.generation++
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	if err := errors.Join(l.Finalize(), l.Initialize()); err != nil {
		return transient{inWords("start the library again", err)}
	}
	return nil
}

var libraries struct {
	mu     sync.Mutex
	byPath map[string]*library
}

// loadModule loads the library at path, or takes the loaded one.
func loadModule(path string) (*library, error) {
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	l := libraries.byPath[path]
	if l == nil {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("module-path: %w: install the token's PKCS#11 library (SoftHSM: apt-get install softhsm2) and name its file", err)
		}
		ctx := pkcs11.New(path)
		if ctx == nil {
			return nil, fmt.Errorf("module-path %s: not a PKCS#11 library that loads here: `ldd %s` shows whether it is one for this machine and what it misses", path, path)
		}
		l = &library{Ctx: ctx}
		if libraries.byPath == nil {
			libraries.byPath = make(map[string]*library)
		}
		libraries.byPath[path] = l
	}
	if l.users == 0 {
		if err := l.Initialize(); err != nil && !errors.Is(err, pkcs11.Error(pkcs11.CKR_CRYPTOKI_ALREADY_INITIALIZED)) {
			return nil, inWords("start the library", err)
		}
	}
	l.users++
	return l, nil
}

func (l *library) release() error {
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	if l.users--; l.users > 0 {
		return nil
	}
	return l.Finalize()
}

type meaning struct {
	words     string
	transient bool
}

// meanings puts the codes that an operator may meet into words, with the fix,
// and says which ones a new login may mend.
var meanings = map[uint]meaning{
	pkcs11.CKR_PIN_INCORRECT:              {"the token refused the PIN; it is not tried again, for a few wrong ones lock a token: put the right PIN into the file of pin-source and restart", false},
	pkcs11.CKR_PIN_INVALID:                {"the PIN has characters that the token does not take: mend the file of pin-source", false},
	pkcs11.CKR_PIN_LEN_RANGE:              {"the PIN is too short or too long for the token: mend the file of pin-source", false},
	pkcs11.CKR_PIN_EXPIRED:                {"the PIN has expired: set a new one by the token's own tool, and in the file of pin-source", false},
	pkcs11.CKR_PIN_LOCKED:                 {"the PIN is locked after too many wrong ones: the token's security officer must set a new one", false},
	pkcs11.CKR_USER_PIN_NOT_INITIALIZED:   {"the token has no user PIN yet: its security officer must set one", false},
	pkcs11.CKR_MECHANISM_INVALID:          {"the token does not sign with CKM_ECDSA: es256 needs one that does", false},
	pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED: {"the key may not sign: make one with CKA_SIGN", false},
	pkcs11.CKR_KEY_TYPE_INCONSISTENT:      {"the key is none for ECDSA: es256 needs P-256", false},
	pkcs11.CKR_CANT_LOCK:                  {"the library cannot be used by several threads: it does not serve here", false},
	pkcs11.CKR_DEVICE_REMOVED:             {"the token was removed: connect it again", true},
	pkcs11.CKR_TOKEN_NOT_PRESENT:          {"the token is not there: connect it again", true},
	pkcs11.CKR_TOKEN_NOT_RECOGNIZED:       {"the library does not know the token in the slot: connect the right one", true},
	pkcs11.CKR_SLOT_ID_INVALID:            {"the token's slot is gone: connect it again", true},
	pkcs11.CKR_CRYPTOKI_NOT_INITIALIZED:   {"the library was started again: a new login follows", true},
	pkcs11.CKR_DEVICE_ERROR:               {"the token or the way to it failed: look at its own log", true},
	pkcs11.CKR_DEVICE_MEMORY:              {"the token has no memory left: run fewer clients of it", true},
	pkcs11.CKR_HOST_MEMORY:                {"the library got no memory: give the process more", true},
	pkcs11.CKR_FUNCTION_FAILED:            {"the token failed: look at its own log", true},
	pkcs11.CKR_GENERAL_ERROR:              {"the library failed: look at its own log", true},
	pkcs11.CKR_SESSION_COUNT:              {"the token has no session left: run fewer clients of it", true},
	pkcs11.CKR_SESSION_HANDLE_INVALID:     {"the session ended: a new login follows", true},
	pkcs11.CKR_SESSION_CLOSED:             {"the session was closed: a new login follows", true},
	pkcs11.CKR_USER_NOT_LOGGED_IN:         {"the login ended: a new one follows", true},
	pkcs11.CKR_KEY_HANDLE_INVALID:         {"the key's handle ended: a new login follows", true},
	pkcs11.CKR_OBJECT_HANDLE_INVALID:      {"the key's handle ended: a new login follows", true},
	pkcs11.CKR_OPERATION_ACTIVE:           {"the session was busy: a new login follows", true},
	pkcs11.CKR_OPERATION_NOT_INITIALIZED:  {"the session forgot its work: a new login follows", true},
}

// inWords tells which step failed, the code, and what to do about it.
func inWords(step string, err error) error {
	code, ok := errors.AsType[pkcs11.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", step, err)
	}
	known, ok := meanings[uint(code)]
	if !ok {
		return fmt.Errorf("%s: %w", step, err)
	}
	err = fmt.Errorf("%s: %s (%w)", step, known.words, err)
	if known.transient {
		return transient{err}
	}
	return err
}
