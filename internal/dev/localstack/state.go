package localstack

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// state is the directory of keys, secrets and logs.
type state struct {
	dir       string
	throwaway bool
}

func openState(dir string) (*state, error) {
	if dir == "" {
		temp, err := os.MkdirTemp("", "fairpact-stack-")
		if err != nil {
			return nil, err
		}
		return &state{temp, true}, os.Mkdir(filepath.Join(temp, "log"), 0o700)
	}
	dir, err := filepath.Abs(dir) // absolute, because the binaries get paths of files in this directory
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, "log")
	if err := os.RemoveAll(logs); err != nil {
		return nil, err
	}
	return &state{dir, false}, os.MkdirAll(logs, 0o700)
}

func (s *state) remove() error {
	if !s.throwaway {
		return nil
	}
	return os.RemoveAll(s.dir)
}

func (s *state) path(name string) string { return filepath.Join(s.dir, name) }

func (s *state) secret(name string) (string, error) {
	path := s.path(name)
	have, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(have)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var b [32]byte
	rand.Read(b[:])
	made := hex.EncodeToString(b[:])
	return made, os.WriteFile(path, []byte(made+"\n"), 0o600)
}
