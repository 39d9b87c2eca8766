package signing

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/signing/file"
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
		"gcpkms://projects/p/cryptoKeyVersions/1":    "cannot be in gcpkms yet",
		"pkcs11:token=t;object=o?pin-source=file:/p": "cannot be in pkcs11 yet",
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
