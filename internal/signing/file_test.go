package signing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

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
			private, err := readKeyOf(provider.P256, path)
			if err != nil || !key.Equal(private) {
				t.Errorf("opened again: %v, want the same key", err)
			}
		})
	}
}

func TestKeyFilesRefused(t *testing.T) {
	key := newP256(t)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, ed, bad := ed25519.GenerateKey(rand.Reader)
	if err != nil || bad != nil {
		t.Fatal(err, bad)
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
		"readable by all":          {pkcs8(t, key), 0o644, "chmod 600 "},
		"writable by others":       {pkcs8(t, key), 0o602, "chmod 600 "},
		"P-384 in PKCS#8":          {pkcs8(t, p384), 0o600, "P-384"},
		"Ed25519":                  {pkcs8(t, ed), 0o600, "P-256"},
		"empty":                    {nil, 0o600, "no PEM block"},
		"a public key":             {as("PUBLIC KEY", block.Bytes, nil), 0o600, "no PEM block"},
		"cut short":                {as("PRIVATE KEY", block.Bytes[:60], nil), 0o600, "is damaged"},
		"damaged":                  {as("PRIVATE KEY", damaged, nil), 0o600, "is damaged"},
		"PKCS#8 said SEC1":         {as("EC PRIVATE KEY", block.Bytes, nil), 0o600, "is damaged"},
		"encrypted PKCS#8":         {as("ENCRYPTED PRIVATE KEY", block.Bytes, nil), 0o600, "decrypt"},
		"encrypted with Proc-Type": {as("EC PRIVATE KEY", block.Bytes, map[string]string{"Proc-Type": "4,ENCRYPTED"}), 0o600, "decrypt"},
		"two keys":                 {append(pkcs8(t, key), sec1(t, newP256(t))...), 0o600, "more than one"},
		"far too long for one":     {append(pkcs8(t, key), make([]byte, maxKeyFile)...), 0o600, "not a key file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, c.text, c.mode)
			for scheme, open := range map[string]func(context.Context, string, provider.Kind) (provider.Provider, error){"file": openFile, "dev": openDev} {
				_, err := open(t.Context(), "//"+path, provider.P256)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
					t.Fatalf("%s: error %q; want one naming %q and the file", scheme, err, c.want)
				}
				if leaked := leak(err.Error(), c.text); leaked != "" {
					t.Errorf("%s: the error shows %q of the file, want no part of the key", scheme, leaked)
				}
			}
			if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, c.text) {
				t.Errorf("opening changed the file (%v), want it as before", err)
			}
		})
	}
}

// leak returns eight consecutive bytes of a secret that the message contains, or "". The secrets
// are the contents of the file's PEM blocks, or the whole file if it has none.
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

func TestMadeKeyFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := openDev(t.Context(), "//"+dir+"/dev.pem", provider.P256); err != nil {
		t.Fatal(err)
	}
	label, err := MakeKeyFile(dir+"/log.pem", "ed25519")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MakeKeyFile(dir+"/log.pem", "ed25519"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("MakeKeyFile over an existing file: %v, want fs.ErrExist", err)
	}
	if read, err := ReadSeatKey(dir + "/log.pem"); err != nil || read.Label != label {
		t.Errorf("ReadSeatKey after the refused MakeKeyFile: %v, want the first key", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v (%v), want only the two keys", entries, err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600: %v", entry.Name(), info.Mode(), err)
		}
	}
}

func TestDevKeyRace(t *testing.T) {
	path := t.TempDir() + "/new/dev.pem"
	keys := make([]crypto.PublicKey, 20)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			p, err := openDev(t.Context(), "//"+path, provider.Ed25519)
			if err == nil {
				keys[i], _, err = p.Key(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if keys[0] == nil || !keys[0].(ed25519.PublicKey).Equal(key) {
			t.Fatalf("processes that start together opened the keys %x, want one key", keys)
		}
	}
}
