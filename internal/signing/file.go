package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

// fileKey is a key in a PEM file.
type fileKey struct {
	private crypto.Signer
	custody string
}

func openFile(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	path, err := pathOf("file", rest)
	if err != nil {
		return nil, err
	}
	private, err := readKeyOf(kind, path)
	return fileKey{private, "software key in a file of the service"}, err
}

// openDev reads a development key, or makes it. Processes that start at the same time get the
// same key: only one can create the file, and all read it.
func openDev(_ context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	path, err := pathOf("dev", rest)
	if err != nil {
		return nil, err
	}
	private, err := readKeyOf(kind, path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := createKeyFile(path, kind); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("cannot make the development signing key: %w", err)
		}
		private, err = readKeyOf(kind, path)
	}
	return fileKey{private, "development key in a file, made by the service itself: not for production"}, err
}

func pathOf(scheme, rest string) (string, error) {
	path, ok := strings.CutPrefix(rest, "//")
	if !ok || path == "" {
		return "", fmt.Errorf("the signer URI of scheme %s lacks '//' or a path: write %s://PATH", scheme, scheme)
	}
	return path, nil
}

func (k fileKey) Key(context.Context) (crypto.PublicKey, string, error) {
	return k.private.Public(), k.custody, nil
}

func (k fileKey) Sign(ctx context.Context, data []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hash := crypto.Hash(0) // for Ed25519: data is the message, not a digest
	if _, ok := k.private.(*ecdsa.PrivateKey); ok {
		hash = crypto.SHA256
	}
	return k.private.Sign(rand.Reader, data, hash)
}

func (k fileKey) Close() error { return nil }

func readKeyOf(kind provider.Kind, path string) (crypto.Signer, error) {
	private, err := readKeyFile(path)
	_, isEd25519 := private.(ed25519.PrivateKey)
	switch {
	case err != nil:
	case kind == provider.Ed25519 && !isEd25519:
		err = fmt.Errorf("signing key %s: not an Ed25519 key: make a log key with `fairpactctl log key` or `openssl genpkey -algorithm ED25519`", path)
	case kind == provider.P256 && isEd25519:
		err = fmt.Errorf("signing key %s: not an ECDSA key: es256 needs ECDSA on P-256", path)
	}
	return private, err
}

const maxKeyFile = 64 << 10 // bytes; the file of a P-256 key has about 250

// readKeyFile reads a P-256 or Ed25519 key in PEM. Its errors MUST NOT contain any part of the file's
// contents.
func readKeyFile(path string) (crypto.Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return nil, fmt.Errorf("signing key %s: not a regular file: name the PEM file of the key", path)
	case mode.Perm()&0o077 != 0:
		return nil, fmt.Errorf("signing key %s: the file mode %04o gives other users access: run `chmod 600 %s`", path, mode.Perm(), path)
	case info.Size() > maxKeyFile:
		return nil, fmt.Errorf("signing key %s: larger than %d bytes, so not a key file: name the PEM file of the key", path, maxKeyFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	private, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	return private, nil
}

// parseKey returns the P-256 or Ed25519 key in a PEM text, which MUST have exactly one private key.
// parseKey skips other blocks, such as the EC PARAMETERS that openssl writes first.
func parseKey(text []byte) (crypto.Signer, error) {
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
		if private.Curve != elliptic.P256() {
			return nil, fmt.Errorf("the key is on the curve %s: es256 needs P-256", private.Curve.Params().Name)
		}
		return private, nil
	case ed25519.PrivateKey:
		return private, nil
	}
	return nil, errors.New("the key is neither ECDSA nor Ed25519: es256 needs ECDSA on P-256, and a log key is Ed25519")
}

// createKeyFile writes a new key to a file. The error wraps fs.ErrExist if the file already exists.
func createKeyFile(path string, kind provider.Kind) (private crypto.Signer, err error) {
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

// MakeKeyFile writes a new es256 or ed25519 key to a new PEM file, and returns the public key's label.
func MakeKeyFile(path, scheme string) (label string, err error) {
	kind, known := map[string]provider.Kind{"es256": provider.P256, "ed25519": provider.Ed25519}[scheme]
	if !known {
		return "", fmt.Errorf("key type %q is not known: use es256 or ed25519", scheme)
	}
	private, err := createKeyFile(path, kind)
	if err != nil {
		return "", err
	}
	return keys.Label(private.Public())
}

// SeatKey is the private key of a party. It signs on the party's machine, never in a service.
type SeatKey struct {
	Label   string // the public key, as es256:HEX or ed25519:HEX
	private crypto.Signer
}

// ReadSeatKey reads an es256 or ed25519 key from a PEM file.
func ReadSeatKey(path string) (k SeatKey, err error) {
	if k.private, err = readKeyFile(path); err == nil {
		k.Label, err = keys.Label(k.private.Public())
	}
	return k, err
}

// Sign signs a message.
func (k SeatKey) Sign(message []byte) (string, error) {
	if private, ok := k.private.(ed25519.PrivateKey); ok {
		return "ed25519:" + hex.EncodeToString(ed25519.Sign(private, message)), nil
	}
	digest := sha256.Sum256(message)
	der, err := k.private.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return "", err
	}
	return keys.FromDER(der)
}
