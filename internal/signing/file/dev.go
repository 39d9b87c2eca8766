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
	"io/fs"
	"os"
	"path/filepath"
)

// OpenDev reads the development key that a dev URI names; rest is what follows
// its scheme and colon. It makes the key first where there is none. All
// processes that start at once get one key: whoever links its file first has
// made it, and everyone reads that file.
func OpenDev(_ context.Context, rest string) (*Provider, error) {
	path, err := pathOf("dev", rest)
	if err != nil {
		return nil, err
	}
	key, err := loadOrMake(path, p256, func() (any, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) })
	if err != nil {
		return nil, err
	}
	return &Provider{key, custodyDev}, nil
}

const custodyDev = "development key in a file, made by the service itself: not for production"

// loadOrMake reads the key at path, and makes it first where there is none.
func loadOrMake[K any](path string, check func(any) (K, error), generate func() (any, error)) (K, error) {
	key, err := loadKey(path, check)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	made, err := generate()
	if err == nil {
		err = writeKey(path, made)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return key, fmt.Errorf("make the development signing key: %w", err)
	}
	return loadKey(path, check)
}

// writeKey puts a new key at path, whole and durable. The error is fs.ErrExist
// where a file is there by then.
func writeKey(path string, key any) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	err = pem.Encode(temporary, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	// A link, not a rename: it fails where a file exists, so no key that another
	// process has begun to sign with is ever replaced.
	if err := os.Link(temporary.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
