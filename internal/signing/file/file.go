// Package file signs with a private key in a PEM file: one that an operator put
// there (file://PATH), or one for development that is made at first use
// (dev://PATH). A deployment key is on P-256, a log key is an Ed25519 one.
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
	key, err := loadKey(path, p256)
	if err != nil {
		return nil, err
	}
	return &Provider{key, custodyFile}, nil
}

const custodyFile = "software key in a file of the service"

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

// loadKey reads a private key in PEM of the kind that check accepts. Its errors
// name the file and what to do about it, and never hold a byte of its contents.
func loadKey[K any](path string, check func(any) (K, error)) (key K, err error) {
	text, err := readKeyFile(path)
	if err != nil {
		return key, err
	}
	parsed, err := parseKey(text)
	if err == nil {
		key, err = check(parsed)
	}
	if err != nil {
		return key, fmt.Errorf("signing key %s: %w", path, err)
	}
	return key, nil
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
	return text, nil
}

// parseKey finds the one private key in PEM text; other blocks, such as the
// EC PARAMETERS that openssl writes first, are passed over.
func parseKey(text []byte) (any, error) {
	var found any
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

func parseBlock(block *pem.Block) (any, error) {
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
	return parsed, nil
}

// p256 takes what a deployment key must be.
func p256(parsed any) (*ecdsa.PrivateKey, error) {
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an elliptic curve key: es256 needs ECDSA on P-256")
	}
	if key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("a key on %s: es256 needs P-256", key.Curve.Params().Name)
	}
	return key, nil
}
