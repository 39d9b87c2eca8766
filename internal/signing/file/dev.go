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
	key, err := loadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return nil, fmt.Errorf("make the development signing key: %w", err)
		}
		key, err = loadKey(path)
	}
	if err != nil {
		return nil, err
	}
	return &Provider{key, "development key in a file, made by the service itself: not for production"}, nil
}

// makeKey puts a new key at path, whole and durable, unless a file is there by
// then, which is no error.
func makeKey(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
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
	if err := os.Link(temporary.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
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
