// Package file signs with a private key in a PEM file. The URI file://PATH names an existing
// file. The URI dev://PATH names a development key, which the package makes at first use.
package file

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

type key struct {
	private crypto.Signer
	custody string
}

// Open reads the key that a file URI names. `rest` is the URI without "file:".
func Open(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	path, err := pathOf("file", rest)
	if err != nil {
		return nil, err
	}
	private, err := load(path, kind)
	if err != nil {
		return nil, err
	}
	return key{private, "software key in a file of the service"}, nil
}

// OpenDev reads the development key of a dev URI, or makes it. Processes that start at the same
// time get the same key: only one can create the file, and all read it.
func OpenDev(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	path, err := pathOf("dev", rest)
	if err != nil {
		return nil, err
	}
	private, err := load(path, kind)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := create(path, kind); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("cannot make the development signing key: %w", err)
		}
		private, err = load(path, kind)
	}
	if err != nil {
		return nil, err
	}
	return key{private, "development key in a file, made by the service itself: not for production"}, nil
}

// Read reads a P-256 or Ed25519 private key from a PEM file.
func Read(path string) (crypto.Signer, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	private, err := parseKey(text, provider.Ed25519)
	if err != nil {
		private, err = parseKey(text, provider.P256)
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return private, nil
}

// Make writes a new key to a file that MUST NOT exist yet, and returns the public key.
func Make(path string, kind provider.Kind) (crypto.PublicKey, error) {
	private, err := create(path, kind)
	if err != nil {
		return nil, err
	}
	return private.Public(), nil
}

func pathOf(scheme, rest string) (string, error) {
	path, ok := strings.CutPrefix(rest, "//")
	if !ok || path == "" {
		return "", fmt.Errorf("the signer URI of scheme %s lacks '//' or a path: write %s://PATH", scheme, scheme)
	}
	return path, nil
}

func (k key) Key(context.Context) (crypto.PublicKey, string, error) {
	return k.private.Public(), k.custody, nil
}

func (k key) Sign(ctx context.Context, data []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hash := crypto.Hash(0) // for Ed25519: data is the message, not a digest
	if _, ok := k.private.(*ecdsa.PrivateKey); ok {
		hash = crypto.SHA256
	}
	return k.private.Sign(rand.Reader, data, hash)
}

func (k key) Close() error { return nil }

const maxKeyFile = 64 << 10 // bytes; the file of a P-256 key has about 250

// load reads a private key in PEM. Its errors MUST NOT contain any part of the file's
// contents.
func load(path string, kind provider.Kind) (crypto.Signer, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	private, err := parseKey(text, kind)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	return private, nil
}

func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("signing key %s: not a regular file: name the PEM file of the key", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("signing key %s: the file mode %04o gives other users access: run `chmod 600 %s`", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("signing key %s: larger than %d bytes, so not a key file: name the PEM file of the key", path, maxKeyFile)
	}
	return text, nil
}

// parseKey returns the private key in a PEM text, which MUST have exactly one private key.
// parseKey skips other blocks, such as the EC PARAMETERS that openssl writes first.
func parseKey(text []byte, kind provider.Kind) (crypto.Signer, error) {
	var found any
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		parse := func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) }
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["Proc-Type"] != "":
			return nil, errors.New("the key is encrypted and the service has no passphrase: decrypt it with `openssl pkey -in KEY -out PLAIN`")
		case block.Type == "PRIVATE KEY":
			parse = x509.ParsePKCS8PrivateKey
		case block.Type != "EC PRIVATE KEY":
			continue
		}
		private, err := parse(block.Bytes)
		if err != nil {
			// err may contain bytes of the key, so the returned error omits err.
			return nil, fmt.Errorf("the %s block is damaged, cut short or of an unknown kind: write the key file again", block.Type)
		}
		if found != nil {
			return nil, errors.New("more than one private key: keep one")
		}
		found = private
	}
	switch private := found.(type) {
	case nil:
		return nil, errors.New("no PEM block of type PRIVATE KEY (PKCS#8) or EC PRIVATE KEY (SEC1): make a key with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` (for a log key: `openssl genpkey -algorithm ED25519`)")
	case *ecdsa.PrivateKey:
		if kind == provider.P256 && private.Curve != elliptic.P256() {
			return nil, fmt.Errorf("the key is on the curve %s: es256 needs P-256", private.Curve.Params().Name)
		}
		if kind == provider.P256 {
			return private, nil
		}
	case ed25519.PrivateKey:
		if kind == provider.Ed25519 {
			return private, nil
		}
	}
	if kind == provider.Ed25519 {
		return nil, errors.New("not an Ed25519 key: make a log key with `fairpactctl log key` or `openssl genpkey -algorithm ED25519`")
	}
	return nil, errors.New("not an ECDSA key: es256 needs ECDSA on P-256")
}

// create makes a key and writes it to path. The error wraps fs.ErrExist if the file
// already exists.
func create(path string, kind provider.Kind) (private crypto.Signer, err error) {
	if kind == provider.Ed25519 {
		_, private, err = ed25519.GenerateKey(rand.Reader)
	} else {
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return private, files.Create(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}
