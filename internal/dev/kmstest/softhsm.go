package kmstest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SoftHSMLibrary is the PKCS#11 library of the Debian package softhsm2.
const SoftHSMLibrary = "/usr/lib/softhsm/libsofthsm2.so"

// SoftHSM is a PKCS#11 token named "fairpact" in Dir, a temporary folder of the test.
type SoftHSM struct{ Dir, PIN string }

// StartSoftHSM makes the token and sets SOFTHSM2_CONF, so the test must not be
// parallel.
func StartSoftHSM(t testing.TB) *SoftHSM {
	t.Helper()
	s := &SoftHSM{t.TempDir(), "secret-1234"}
	t.Setenv("SOFTHSM2_CONF", s.Write(t, "softhsm2.conf", "directories.tokendir = "+s.Dir+"/tokens\nobjectstore.backend = file\nlog.level = ERROR\n"))
	s.Write(t, "pin", s.PIN+"\n")
	if err := os.Mkdir(s.Dir+"/tokens", 0o700); err != nil {
		t.Fatal(err)
	}
	s.util(t, "--init-token", "--free", "--label", "fairpact", "--so-pin", "so-secret", "--pin", s.PIN)
	return s
}

func (s *SoftHSM) util(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("softhsm2-util", args...).CombinedOutput(); err != nil {
		t.Fatalf("softhsm2-util %s: %v\n%s", args[0], err, out)
	}
}

// Write writes a file into Dir and returns the file's path.
func (s *SoftHSM) Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Import copies a private key into the token. `id` is CKA_ID in hex.
func (s *SoftHSM) Import(t testing.TB, label, id string, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := s.Write(t, label+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	s.util(t, "--import", path, "--token", "fairpact", "--label", label, "--id", id, "--pin", s.PIN)
}

// URI returns the URI of a key, for a key set. `key` is object=LABEL or id=ID.
func (s *SoftHSM) URI(key string) string {
	return "pkcs11:token=fairpact;" + key + "?module-path=" + SoftHSMLibrary + "&pin-source=file:" + s.Dir + "/pin"
}

// Away removes the token or, if `away` is false, puts it back.
func (s *SoftHSM) Away(t testing.TB, away bool) {
	t.Helper()
	tokens, hidden := s.Dir+"/tokens", s.Dir+"/away"
	var err error
	if away {
		err = errors.Join(os.Rename(tokens, hidden), os.Mkdir(tokens, 0o700))
	} else {
		err = errors.Join(os.Remove(tokens), os.Rename(hidden, tokens))
	}
	if err != nil {
		t.Fatal(err)
	}
}
