package file

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
)

// Ed25519 is a log key in this process's memory.
type Ed25519 struct {
	key     ed25519.PrivateKey
	custody string
}

// OpenEd25519 is Open for a log key, PKCS#8 in PEM.
func OpenEd25519(_ context.Context, rest string) (*Ed25519, error) {
	path, err := pathOf("file", rest)
	if err != nil {
		return nil, err
	}
	key, err := loadKey(path, edwards)
	if err != nil {
		return nil, err
	}
	return &Ed25519{key, custodyFile}, nil
}

// OpenDevEd25519 is OpenDev for a log key.
func OpenDevEd25519(_ context.Context, rest string) (*Ed25519, error) {
	path, err := pathOf("dev", rest)
	if err != nil {
		return nil, err
	}
	key, err := loadOrMake(path, edwards, newEd25519)
	if err != nil {
		return nil, err
	}
	return &Ed25519{key, custodyDev}, nil
}

// MakeEd25519 writes a new log key for OpenEd25519 into a file that does not
// exist yet, and returns its public half.
func MakeEd25519(path string) (ed25519.PublicKey, error) {
	key, err := newEd25519()
	if err == nil {
		err = writeKey(path, key)
	}
	if err != nil {
		return nil, err
	}
	return key.(ed25519.PrivateKey).Public().(ed25519.PublicKey), nil
}

func newEd25519() (any, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

// edwards takes what a log key must be.
func edwards(parsed any) (ed25519.PrivateKey, error) {
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("not an Ed25519 key: make a log key with fairpactctl log key, a seat key with fairpactctl key new, or openssl genpkey -algorithm ED25519")
	}
	return key, nil
}

// Key returns the public half.
func (e *Ed25519) Key(context.Context) (ed25519.PublicKey, string, error) {
	return e.key.Public().(ed25519.PublicKey), e.custody, nil
}

// Sign signs the message, unless ctx has ended.
func (e *Ed25519) Sign(ctx context.Context, message []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ed25519.Sign(e.key, message), nil
}

// Close has nothing to release.
func (e *Ed25519) Close() error { return nil }
