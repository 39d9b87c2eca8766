package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func TestLogKeyIsMadeOnceAndSigns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.pem")
	public, err := file.MakeEd25519(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.MakeEd25519(path); err == nil {
		t.Error("a key file was overwritten")
	}
	for _, uri := range []string{"file://" + path, "dev://" + path} {
		key, err := OpenLogKey(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := key.Sign(t.Context(), []byte("message"))
		if err != nil || !key.Public().Equal(public) || !ed25519.Verify(public, []byte("message"), signature) {
			t.Errorf("%s: %v", uri, err)
		}
	}
	fresh := filepath.Join(t.TempDir(), "dev.pem")
	first, err := OpenLogKey(t.Context(), "dev://"+fresh)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenLogKey(t.Context(), "dev://"+fresh)
	if err != nil || !again.Public().Equal(first.Public()) {
		t.Errorf("another development key at the second start: %v", err)
	}
}

// What every key service does alike with a log key. The one of PKCS#11, whose build
// has a tag, is in conformance_pkcs11_test.go.
func TestLogKeysConform(t *testing.T) {
	g, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	a := kmstest.NewAWS(t)
	failing := []kmstest.Fault{kmstest.OtherKeyName, kmstest.OtherDigest, kmstest.OtherKey, kmstest.Denied}
	passing := []kmstest.Fault{kmstest.Throttled, kmstest.ServerError, kmstest.Overloaded, kmstest.CutConnection}
	for name, c := range map[string]struct {
		uri, p256, ed25519 string
		fail               func(kmstest.Fault, int) error
		more               []kmstest.Fault
	}{
		"gcpkms": {g.URI(g.NewLogKey()), g.URI(g.NewKey()), "EC_SIGN_ED25519", g.FailTimes, []kmstest.Fault{kmstest.CorruptedCRC, kmstest.MissingCRC, kmstest.UnverifiedDigest}},
		"awskms": {a.URI(a.NewLogKey()), a.URI(a.NewKey()), "ECC_NIST_EDWARDS25519", a.FailTimes, []kmstest.Fault{kmstest.OtherAlgorithm}},
	} {
		t.Run(name, func(t *testing.T) {
			key := logKeyConforms(t, c.uri)
			for _, fault := range append(passing, c.more...) {
				if err := c.fail(fault, 1); err != nil {
					t.Fatal(err)
				}
				if _, err := key.Sign(t.Context(), []byte(fault)); err != nil {
					t.Errorf("%s, once: %v", fault, err)
				}
			}
			for _, fault := range append(failing, c.more...) {
				if err := c.fail(fault, -1); err != nil {
					t.Fatal(err)
				}
				if signature, err := key.Sign(t.Context(), []byte(fault)); err == nil || signature != nil {
					t.Errorf("%s: signed", fault)
				}
			}
			if err := c.fail(kmstest.None, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenLogKey(t.Context(), c.p256); err == nil || !strings.Contains(err.Error(), "a log key needs "+c.ed25519) {
				t.Errorf("a P-256 key: %v", err)
			}
			if _, err := Open(t.Context(), c.uri); err == nil || !strings.Contains(err.Error(), "es256 needs ") {
				t.Errorf("a log key as deployment key: %v", err)
			}
		})
	}
}

// logKeyConforms is what every provider must do with a log key.
func logKeyConforms(t *testing.T, uri string) *LogKey {
	t.Helper()
	open := func() *LogKey {
		key, err := OpenLogKey(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := key.Close(); err != nil {
				t.Error(err)
			}
		})
		return key
	}
	key, again := open(), open()
	if !again.Public().Equal(key.Public()) || key.Custody() == "" {
		t.Errorf("first %x, then %x, in %q", key.Public(), again.Public(), key.Custody())
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			message := fmt.Appendf(nil, "fairpact.example.com\n%d\n", i)
			signature, err := key.Sign(t.Context(), message)
			if err != nil || !ed25519.Verify(again.Public(), message, signature) {
				t.Errorf("message %d: %x, %v", i, signature, err)
			}
		})
	}
	all.Wait()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if signature, err := key.Sign(gone, []byte("message")); signature != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %x, %v", signature, err)
	}
	return key
}

func TestLogKeysRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(t.Context(), "dev://"+dir+"/p256.pem"); err != nil {
		t.Fatal(err)
	}
	if _, err := file.MakeEd25519(dir + "/open.pem"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/open.pem", 0o644); err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]string{
		"file://" + dir + "/p256.pem":                "not an Ed25519 key",
		"dev://" + dir + "/p256.pem":                 "not an Ed25519 key",
		"file://" + dir + "/open.pem":                "chmod 600",
		"file://" + dir + "/none.pem":                "no such file",
		"file:":                                      "names no file",
		"gcpkms://projects/p/cryptoKeyVersions/1":    "cryptoKeyVersions/N",
		"awskms:///alias/a":                          "alias",
		"pkcs11:token=t;object=o?pin-source=file:/p": "module-path",
		dir + "/p256.pem":                            "not a known URI",
		"":                                           "not a known URI",
	} {
		if _, err := OpenLogKey(t.Context(), uri); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
	}
	// And a log key is no deployment key.
	if err := os.Chmod(dir+"/open.pem", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "file://"+dir+"/open.pem"); err == nil {
		t.Error("an Ed25519 key opened as a deployment key")
	}
}

func TestDERVerifiesElsewhere(t *testing.T) {
	signer, err := Open(t.Context(), "dev://"+t.TempDir()+"/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("text"))
	signature, err := signer.Sign(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	der, err := DER(signature)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ES256(signer.PublicKey())
	if err != nil || !ecdsa.VerifyASN1(public, digest[:], der) {
		t.Errorf("not verified (%v)", err)
	}
	if _, err := DER("ed25519:" + strings.Repeat("00", 64)); err == nil {
		t.Error("an ed25519 signature has a DER form")
	}
	if _, err := ES256("ed25519:" + strings.Repeat("00", 32)); err == nil {
		t.Error("an ed25519 label read as es256")
	}
}
