package file

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func newP256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return newKey(t, elliptic.P256())
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func sec1(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func writeFile(t *testing.T, text []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeyFileForms(t *testing.T) {
	key := newP256(t)
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}})
	for name, path := range map[string]string{
		"PKCS#8":                      writeFile(t, pkcs8(t, key), 0o600),
		"SEC1":                        writeFile(t, sec1(t, key), 0o600),
		"SEC1 behind its parameters":  writeFile(t, append(parameters, sec1(t, key)...), 0o600),
		"readable only, by its owner": writeFile(t, pkcs8(t, key), 0o400),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Open(t.Context(), "//"+path)
			if err != nil || !p.key.Equal(key) {
				t.Errorf("another key, or %v", err)
			}
		})
	}
}

// Each refused key file: the error says what to do, and shows nothing of the key.
func TestKeyFilesRefused(t *testing.T) {
	key := newP256(t)
	p384 := newKey(t, elliptic.P384())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pkcs8(t, key))
	as := func(kind string, der []byte, headers map[string]string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der, Headers: headers})
	}
	damaged := bytes.Clone(block.Bytes)
	damaged[30] ^= 0xff

	for name, c := range map[string]struct {
		text []byte
		mode os.FileMode
		want string
	}{
		"readable by all":      {pkcs8(t, key), 0o644, "chmod 600 "},
		"readable by group":    {pkcs8(t, key), 0o640, "chmod 600 "},
		"writable by others":   {pkcs8(t, key), 0o602, "chmod 600 "},
		"P-384 in PKCS#8":      {pkcs8(t, p384), 0o600, "P-384"},
		"P-384 in SEC1":        {sec1(t, p384), 0o600, "P-384"},
		"Ed25519":              {pkcs8(t, ed), 0o600, "P-256"},
		"RSA":                  {pkcs8(t, rsaKey), 0o600, "P-256"},
		"empty":                {nil, 0o600, "no PEM block"},
		"hex without PEM":      {[]byte(hex.EncodeToString(block.Bytes)), 0o600, "no PEM block"},
		"a public key":         {as("PUBLIC KEY", block.Bytes, nil), 0o600, "no PEM block"},
		"cut short":            {as("PRIVATE KEY", block.Bytes[:60], nil), 0o600, "undamaged"},
		"damaged":              {as("PRIVATE KEY", damaged, nil), 0o600, "undamaged"},
		"PKCS#8 said SEC1":     {as("EC PRIVATE KEY", block.Bytes, nil), 0o600, "undamaged"},
		"encrypted PKCS#8":     {as("ENCRYPTED PRIVATE KEY", block.Bytes, nil), 0o600, "decrypt"},
		"encrypted old style":  {as("EC PRIVATE KEY", block.Bytes, map[string]string{"Proc-Type": "4,ENCRYPTED"}), 0o600, "decrypt"},
		"two keys":             {append(pkcs8(t, key), sec1(t, newP256(t))...), 0o600, "more than one"},
		"far too long for one": {append(pkcs8(t, key), make([]byte, maxKeyFile)...), 0o600, "no key file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, c.text, c.mode)
			for scheme, open := range map[string]func(context.Context, string) (*Provider, error){"file": Open, "dev": OpenDev} {
				_, err := open(t.Context(), "//"+path)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
					t.Fatalf("%s: error %q; want one naming %q and the file", scheme, err, c.want)
				}
				if leaked := leak(err.Error(), c.text); leaked != "" {
					t.Errorf("%s: the error shows %q of the file", scheme, leaked)
				}
			}
			if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, c.text) {
				t.Errorf("opening changed the file (%v)", err)
			}
		})
	}
}

// leak finds eight characters in a row that message shares with the key file,
// with its base64 body or with the hex of its DER.
func leak(message string, file []byte) string {
	var secrets []string
	for rest := file; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		secrets = append(secrets, base64.StdEncoding.EncodeToString(block.Bytes), hex.EncodeToString(block.Bytes), string(block.Bytes))
	}
	if len(secrets) == 0 {
		secrets = []string{string(file)}
	}
	for _, secret := range secrets {
		for i := 0; i+8 <= len(secret); i++ {
			if strings.Contains(message, secret[i:i+8]) {
				return secret[i : i+8]
			}
		}
	}
	return ""
}

func TestDevKeyFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenDev(t.Context(), "//"+dir+"/dev.pem"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir + "/dev.pem")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %04o, want 0600", info.Mode().Perm())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("%d files left in the folder, want the key alone: %v", len(entries), entries)
	}
}

// Processes that start at once, as the binaries of a local stack do, and calls in
// one process.
func TestDevKeyRace(t *testing.T) {
	const path, out = "FILE_TEST_DEV_KEY", "FILE_TEST_OUT"
	open := func(path string) string {
		p, err := OpenDev(t.Context(), "//"+path)
		if err != nil {
			t.Error(err)
			return ""
		}
		point, err := p.key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		return hex.EncodeToString(point)
	}
	if os.Getenv(path) != "" {
		if err := os.WriteFile(os.Getenv(out), []byte(open(os.Getenv(path))), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	keys := make([]string, 20)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			if i >= 3 {
				keys[i] = open(dir + "/new/dev.pem")
				return
			}
			written := fmt.Sprintf("%s/%d", dir, i)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDevKeyRace$")
			child.Env = append(os.Environ(), path+"="+dir+"/new/dev.pem", out+"="+written)
			if said, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, said)
				return
			}
			key, err := os.ReadFile(written)
			if err != nil {
				t.Error(err)
			}
			keys[i] = string(key)
		})
	}
	all.Wait()
	for _, key := range keys {
		if key == "" || key != keys[0] {
			t.Fatalf("two keys from one file: %v", keys)
		}
	}
}
