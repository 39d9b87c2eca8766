//go:build pkcs11 && cgo

package pkcs11

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

var digest = make([]byte, 32)

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func inToken(t *testing.T, s *kmstest.SoftHSM, do func(*library, cryptoki.SessionHandle) error) {
	t.Helper()
	l := libraryAt(kmstest.SoftHSMLibrary)
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if err := l.use(); err != nil {
		t.Fatal(err)
	}
	defer l.release()
	slot, _, err := (&key{at: address{token: "fairpact"}, library: l}).findToken()
	if err != nil {
		t.Fatal(err)
	}
	session, err := l.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION|cryptoki.CKF_RW_SESSION)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.CloseSession(session) }()
	if err := l.Login(session, cryptoki.CKU_USER, s.PIN); err != nil && !errors.Is(err, cryptoki.Error(cryptoki.CKR_USER_ALREADY_LOGGED_IN)) {
		t.Fatal(err)
	}
	if err := do(l, session); err != nil {
		t.Fatal(err)
	}
}

func loseSessions(t *testing.T, s *kmstest.SoftHSM) {
	t.Helper()
	inToken(t, s, func(l *library, session cryptoki.SessionHandle) error {
		info, err := l.GetSessionInfo(session)
		return errors.Join(err, l.CloseAllSessions(info.SlotID))
	})
}

func generate(t *testing.T, s *kmstest.SoftHSM, label string, id byte, sign, sensitive, extractable bool) {
	t.Helper()
	both := []*cryptoki.Attribute{
		cryptoki.NewAttribute(cryptoki.CKA_TOKEN, true), cryptoki.NewAttribute(cryptoki.CKA_LABEL, label), cryptoki.NewAttribute(cryptoki.CKA_ID, []byte{id}),
	}
	public := append([]*cryptoki.Attribute{cryptoki.NewAttribute(cryptoki.CKA_EC_PARAMS, paramsP256), cryptoki.NewAttribute(cryptoki.CKA_VERIFY, true)}, both...)
	private := append([]*cryptoki.Attribute{
		cryptoki.NewAttribute(cryptoki.CKA_PRIVATE, true), cryptoki.NewAttribute(cryptoki.CKA_SIGN, sign),
		cryptoki.NewAttribute(cryptoki.CKA_SENSITIVE, sensitive), cryptoki.NewAttribute(cryptoki.CKA_EXTRACTABLE, extractable),
	}, both...)
	inToken(t, s, func(l *library, session cryptoki.SessionHandle) error {
		_, _, err := l.GenerateKeyPair(session, []*cryptoki.Mechanism{cryptoki.NewMechanism(cryptoki.CKM_EC_KEY_PAIR_GEN, nil)}, public, private)
		return err
	})
}

func read(t *testing.T, uri string) (*key, error) {
	t.Helper()
	p, err := Open(t.Context(), strings.TrimPrefix(uri, "pkcs11:"), provider.P256)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	_, _, err = p.Key(t.Context())
	return p.(*key), err
}

func mustRead(t *testing.T, uri string) *key {
	t.Helper()
	k, err := read(t, uri)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestPKCS11Custody(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	generate(t, s, "kept", 1, true, true, false)
	generate(t, s, "wrapped", 2, true, true, true)
	generate(t, s, "plain", 3, true, false, true)
	s.Import(t, "imported", "04", newKey(t, elliptic.P256()))
	for key, want := range map[string]string{
		"kept":     "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key not extractable",
		"wrapped":  "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key extractable: the token may give it out wrapped",
		"plain":    "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key NOT protected: the token gives it out in plain (not sensitive)",
		"imported": "PKCS#11 token fairpact (SoftHSM project SoftHSM v2), key not extractable, but it was extractable once or was made outside the token",
	} {
		if got := mustRead(t, s.URI("object="+key)).custody; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

// Each error says what is wrong or what to do, and shows no PIN.
func TestPKCS11RefusedAtStart(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.Import(t, "good", "01", newKey(t, elliptic.P256()))
	s.Import(t, "p384", "02", newKey(t, elliptic.P384()))
	s.Import(t, "rsa", "03", rsaKey)
	generate(t, s, "twice", 4, true, true, false)
	generate(t, s, "twice", 5, true, true, false)
	generate(t, s, "no-sign", 6, false, true, false)
	open := s.Write(t, "open-pin", s.PIN)
	if err := os.Chmod(open, 0o604); err != nil {
		t.Fatal(err)
	}
	good := s.URI("object=good")
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, c := range map[string]struct{ uri, want string }{
		"no such library":  {with(kmstest.SoftHSMLibrary, "/nonexistent/hsm.so"), "no such file"},
		"no library":       {with(kmstest.SoftHSMLibrary, s.Dir+"/pin"), "ldd"},
		"no such token":    {with("token=fairpact", "token=other"), `shows ["fairpact"]`},
		"another serial":   {with("object=good", "object=good;serial=none"), `no token "fairpact"`},
		"no such object":   {with("good", "none"), "--list-objects"},
		"label, not id":    {with("good", "good;id=%09"), "id=09"},
		"two objects":      {with("good", "twice"), "more than one private key"},
		"P-384":            {with("good", "p384"), "curve 1.3.132.0.34) do not name P-256"},
		"RSA":              {with("good", "rsa"), "P-256"},
		"may not sign":     {with("good", "no-sign"), "CKA_SIGN"},
		"wrong PIN":        {with(s.Dir+"/pin", s.Write(t, "wrong-pin", "secret-9999")), "not tried again"},
		"no PIN file":      {with(s.Dir+"/pin", s.Dir+"/none"), "no such file"},
		"PIN open to all":  {with(s.Dir+"/pin", open), "chmod 600"},
		"PIN file is long": {with(s.Dir+"/pin", s.Write(t, "long", strings.Repeat("secret-1", 200))), "1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, c.uri)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-") {
				t.Errorf("open: %v, want an error with %q and without a PIN", err, c.want)
			}
		})
	}
	mustRead(t, s.URI("object=twice;id=%05"))
	s.Away(t, true)
	if _, err := read(t, good); err == nil || !strings.Contains(err.Error(), "set SOFTHSM2_CONF") {
		t.Errorf("a library without a token: %v, want an error that names SOFTHSM2_CONF", err)
	}
}

func TestPKCS11Sessions(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "deployment", "01", newKey(t, elliptic.P256()))
	works := func(t *testing.T, p *key) {
		t.Helper()
		der, err := p.Sign(t.Context(), digest)
		if err != nil || !ecdsa.VerifyASN1(p.public.(*ecdsa.PublicKey), digest, der) {
			t.Errorf("Sign after the fault: %v, want a signature that verifies", err)
		}
	}
	start := func(t *testing.T) *key {
		t.Helper()
		p := mustRead(t, s.URI("object=deployment"))
		works(t, p)
		return p
	}

	t.Run("a lost session is a transient error and is opened again", func(t *testing.T) {
		p := start(t)
		loseSessions(t, s)
		_, err := p.Sign(t.Context(), digest)
		if !provider.IsTransient(err) || !errors.Is(err, cryptoki.Error(cryptoki.CKR_SESSION_HANDLE_INVALID)) {
			t.Errorf("Sign with the fault: %v, want a transient error with the code", err)
		}
		works(t, p)
	})

	t.Run("sessions are lost repeatedly under load", func(t *testing.T) {
		p := start(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					if _, err := p.Sign(t.Context(), digest); err != nil && !provider.IsTransient(err) {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			loseSessions(t, s)
		}
		all.Wait()
		_, _ = p.Sign(t.Context(), digest) // may fail, because loseSessions ended the session
		works(t, p)
	})

	t.Run("a session from before a restart is not used", func(t *testing.T) {
		first, second := start(t), start(t)
		if err := first.library.restart(); err != nil {
			t.Fatal(err)
		}
		works(t, first)
		works(t, second)
		works(t, first)
	})

	t.Run("another key under the name is refused", func(t *testing.T) {
		p := start(t)
		p.public = &newKey(t, elliptic.P256()).PublicKey
		loseSessions(t, s)
		_, _ = p.Sign(t.Context(), digest)
		if _, err := p.Sign(t.Context(), digest); err == nil || !strings.Contains(err.Error(), "another key") {
			t.Errorf("Sign after the key was replaced: %v, want an error about another key", err)
		}
	})

	t.Run("the last try of a PIN is not used", func(t *testing.T) {
		p := start(t)
		for flag, want := range map[uint]string{cryptoki.CKF_USER_PIN_FINAL_TRY: "by hand", cryptoki.CKF_USER_PIN_LOCKED: "security officer"} {
			// The PIN in the file is right, so the error comes from the flag, not from the token.
			if err := p.offerPIN(cryptoki.TokenInfo{Flags: flag}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("offerPIN with the flag %#x: %v, want an error with %q", flag, err, want)
			}
		}
	})

	// This is the last subtest because it changes the PIN.
	t.Run("a refused PIN is sent once", func(t *testing.T) {
		p := start(t)
		s.Write(t, "pin", "secret-9999")
		refused := func() {
			t.Helper()
			_, err := p.Sign(t.Context(), digest)
			if err == nil || provider.IsTransient(err) || !strings.Contains(err.Error(), "not tried again") {
				t.Errorf("Sign with a wrong PIN: %v, want an error that says that the PIN is not tried again", err)
			}
		}
		loseSessions(t, s)
		_, _ = p.Sign(t.Context(), digest)
		refused()
		s.Write(t, "pin", "secret-8888")
		refused()
		s.Write(t, "pin", "secret-9999")
		inToken(t, s, func(l *library, session cryptoki.SessionHandle) error { return l.SetPIN(session, s.PIN, "secret-9999") })
		refused() // the token would accept this PIN now, but the key does not send it again
		s.PIN = "secret-9999"
		s.Write(t, "pin", s.PIN+"\n\n") // the file is different now, but the PIN in it is the same
		refused()
		again, err := Open(t.Context(), strings.TrimPrefix(s.URI("object=deployment"), "pkcs11:"), provider.P256)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := again.Key(t.Context()); err == nil || !strings.Contains(err.Error(), "not tried again") {
			t.Errorf("Key of a key that is opened after the refusal: %v, want an error that says that the PIN is not tried again", err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		_ = p.library.call(t.Context(), "", func() error { clear(p.library.refused); return nil }) // as after a restart of the process
		p = mustRead(t, s.URI("object=deployment"))
		works(t, p)
	})
}

// While the library hangs, Key, Sign and Close return an error. The key closes as soon as
// the library answers.
func TestPKCS11HangsAtStart(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "deployment", "01", newKey(t, elliptic.P256()))
	opened, err := Open(t.Context(), strings.TrimPrefix(s.URI("object=deployment"), "pkcs11:"), provider.P256)
	if err != nil {
		t.Fatal(err)
	}
	p := opened.(*key)
	p.library.lock <- struct{}{} // hold the lock, as a hanging call of the PKCS#11 library does
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _, read := p.Key(ctx)
	_, signed := p.Sign(ctx, digest)
	if !errors.Is(signed, context.DeadlineExceeded) || !errors.Is(read, context.DeadlineExceeded) || !strings.Contains(read.Error(), `"fairpact" does not answer`) || strings.Contains(read.Error(), s.PIN) {
		t.Errorf("while the library hangs, Key: %v and Sign: %v, want a timeout that names the token", read, signed)
	}
	if err := p.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while the library hangs: %v, want context.DeadlineExceeded", err)
	}
	<-p.library.lock
	closed := func() bool {
		p.library.lock <- struct{}{}
		defer func() { <-p.library.lock }()
		return p.closed
	}
	for end := time.Now().Add(time.Minute); !closed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the key is not closed")
		}
	}
	if _, err := p.Sign(t.Context(), digest); err == nil {
		t.Error("a closed key signs, want an error")
	}
	if users := p.library.users; users != 0 {
		t.Errorf("%d users of the library are left, want 0", users)
	}
}

func TestPKCS11HangsAlone(t *testing.T) {
	s := kmstest.StartSoftHSM(t)
	s.Import(t, "deployment", "01", newKey(t, elliptic.P256()))
	module, err := os.ReadFile(kmstest.SoftHSMLibrary)
	if err != nil {
		t.Fatal(err)
	}
	uri := s.URI("object=deployment")
	first := mustRead(t, uri)
	second := mustRead(t, strings.Replace(uri, kmstest.SoftHSMLibrary, s.Write(t, "another.so", string(module)), 1))
	link := s.Dir + "/link.so"
	if err := os.Symlink(kmstest.SoftHSMLibrary, link); err != nil {
		t.Fatal(err)
	}
	if linked := mustRead(t, strings.Replace(uri, kmstest.SoftHSMLibrary, link, 1)); linked.library != first.library {
		t.Error("two paths to one library are two libraries, want one")
	}
	second.library.lock <- struct{}{} // hold the lock, as a call of the library that hangs does
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := first.Key(patience); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Sign(t.Context(), digest); err != nil {
		t.Error(err)
	}
	<-second.library.lock
	if _, err := second.Sign(t.Context(), digest); err != nil {
		t.Error(err)
	}
}

func TestPKCS11PublicKeys(t *testing.T) {
	private := newKey(t, elliptic.P256())
	point, err := private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	wrapped := append([]byte{4, 65}, point...)
	for _, good := range [][]byte{point, wrapped} {
		if got, err := parseP256(paramsP256, good); err != nil || !got.Equal(&private.PublicKey) {
			t.Errorf("a point of %d bytes: %v, want the key", len(good), err)
		}
	}
	off := bytes.Clone(wrapped)
	off[66] ^= 1
	for name, bad := range map[string][]byte{
		"nothing": nil, "cut short": wrapped[:66], "compressed": append([]byte{2}, point[1:33]...),
		"not on the curve": off, "another tag": append([]byte{3, 65}, point...), "infinity": {4, 1, 0},
	} {
		if _, err := parseP256(paramsP256, bad); err == nil {
			t.Errorf("a point with %s is accepted, want it refused", name)
		}
	}
	if _, err := parseP256([]byte{5, 0}, wrapped); err == nil {
		t.Error("parameters that name no curve are accepted, want an error")
	}
}

// If the library hangs, library.call returns when its context ends, but the lock stays held.
// Until the library answers, later calls fail without reaching the library.
func TestPKCS11CallThatHangs(t *testing.T) {
	l := &library{lock: make(chan struct{}, 1)}
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	err := l.call(ctx, "fairpact", func() error {
		cancel()
		select {
		case <-release:
		case <-time.After(time.Minute): // reached only if l.call does not return when ctx ends
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"fairpact" does not answer`) {
		t.Fatalf("a call that hangs: %v, want context.Canceled with the token's name", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := l.call(ctx, "fairpact", func() error { t.Error("a call runs beside one that hangs"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call behind one that hangs: %v, want context.DeadlineExceeded", err)
	}
	close(release)
	if err := l.call(t.Context(), "fairpact", func() error { return nil }); err != nil {
		t.Errorf("a call after the library has answered: %v, want no error", err)
	}
}
