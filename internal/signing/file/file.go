// Package file signs with a P-256 private key in a PEM file: one that an operator
// put there (file://PATH), or one for development that is made at first use
// (dev://PATH).
package file

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Provider is a key in this process's memory.
type Provider struct {
	key     *ecdsa.PrivateKey
	custody string
}

// Open reads the key that a file URI names; rest is what follows its scheme and
// colon.
func Open(_ context.Context, rest string) (*Provider, error) {
	path, err := pathOf("file", rest)
	if err != nil {
		return nil, err
	}
	key, err := loadKey(path)
	if err != nil {
		return nil, err
	}
	return &Provider{key, "software key in a file of the service"}, nil
}

func pathOf(scheme, rest string) (string, error) {
	path, ok := strings.CutPrefix(rest, "//")
	if !ok || path == "" {
		return "", fmt.Errorf("the signer URI of scheme %s names no file: write %s://PATH", scheme, scheme)
	}
	return path, nil
}

// Key returns the public half.
func (p *Provider) Key(context.Context) (*ecdsa.PublicKey, string, error) {
	return &p.key.PublicKey, p.custody, nil
}

// Sign signs the digest, unless ctx has ended.
func (p *Provider) Sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ecdsa.SignASN1(rand.Reader, p.key, digest[:])
}

// Close has nothing to release.
func (p *Provider) Close() error { return nil }

// maxKeyFile bounds what is read of a key file; a P-256 key takes 250 bytes.
const maxKeyFile = 64 << 10

// loadKey reads a P-256 private key in PEM. Its errors name the file and what to
// do about it, and never hold a byte of its contents.
func loadKey(path string) (*ecdsa.PrivateKey, error) {
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
		return nil, fmt.Errorf("signing key %s: not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("signing key %s: others than its owner may open it (mode %04o): run chmod 600 %s", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("signing key %s: over %d bytes, this is no key file", path, maxKeyFile)
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	return key, nil
}

// parseKey finds the one private key in PEM text; other blocks, such as the
// EC PARAMETERS that openssl writes first, are passed over.
func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	var found *ecdsa.PrivateKey
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["Proc-Type"] != "" {
			return nil, errors.New("the key is encrypted and the service has no passphrase: decrypt it with openssl pkcs8 -in KEY -out PLAIN")
		}
		if block.Type != "PRIVATE KEY" && block.Type != "EC PRIVATE KEY" {
			continue
		}
		key, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		if found != nil {
			return nil, errors.New("more than one private key: keep one")
		}
		found = key
	}
	if found == nil {
		return nil, errors.New("no PEM block of type PRIVATE KEY (PKCS#8) or EC PRIVATE KEY (SEC1): make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	}
	return found, nil
}

func parseBlock(block *pem.Block) (*ecdsa.PrivateKey, error) {
	var parsed any
	var err error
	if block.Type == "PRIVATE KEY" {
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	} else {
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	}
	if err != nil {
		// The inner error stays out: it is made from the key's bytes.
		return nil, fmt.Errorf("the %s block is not a private key of a known kind, whole and undamaged", block.Type)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an elliptic curve key: es256 needs ECDSA on P-256")
	}
	if key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("a key on %s: es256 needs P-256", key.Curve.Params().Name)
	}
	return key, nil
}
