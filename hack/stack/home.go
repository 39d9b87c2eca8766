package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// home is the directory .run of a checkout. The lock on the directory allows only one running
// stack for each checkout.
type home struct {
	dir  string
	lock *os.File
}

func openHome(dir string) (*home, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("`make run` of this checkout is already running%s: use it, or stop it first", where(dir))
		}
		return nil, err
	}
	h := &home{dir, lock}
	h.withdraw() // a killed stack leaves base-url and env behind
	return h, nil
}

func where(dir string) string {
	url, err := os.ReadFile(filepath.Join(dir, "base-url"))
	if err != nil {
		return ""
	}
	return " at " + strings.TrimSpace(string(url))
}

// postgresDir returns the directory of the database. The directory is in the checkout, or in
// /var/tmp if this process is root. Postgres then runs as another user, who may be unable to
// enter the checkout. postgresDir returns an error if a user other than root owns the directory
// in /var/tmp or can write to it.
func (h *home) postgresDir() (string, error) {
	if os.Geteuid() != 0 {
		return filepath.Join(h.dir, "postgres"), nil
	}
	sum := sha256.Sum256([]byte(h.dir))
	dir := filepath.Join("/var/tmp", "fairpact-run-"+hex.EncodeToString(sum[:6]))
	// Another user can guess the name and create the directory first. The check after Lstat
	// refuses such a directory.
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st := info.Sys().(*syscall.Stat_t); !info.IsDir() || st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s must be a directory that root owns and no other user can write to: check what it contains, then remove it", dir)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // the umask may have removed permissions that Mkdir asked for
		return "", err
	}
	return filepath.Join(dir, "postgres"), nil
}

// announce writes the URLs of the stack to two files for other programs of this checkout.
func (h *home) announce(s *localstack.Stack) error {
	env := fmt.Sprintf("BASE_URL='%s'\nDATABASE_URL='%s'\nREDIS_URL='%s'\n", s.BaseURL(), s.DatabaseURL(), s.RedisURL())
	return errors.Join(
		os.WriteFile(filepath.Join(h.dir, "env"), []byte(env), 0o600),
		os.WriteFile(filepath.Join(h.dir, "base-url"), []byte(s.BaseURL()+"\n"), 0o644))
}

func (h *home) withdraw() {
	os.Remove(filepath.Join(h.dir, "base-url"))
	os.Remove(filepath.Join(h.dir, "env"))
}

func (h *home) close() {
	h.withdraw()
	h.lock.Close()
}

func (h *home) remove() error {
	defer h.lock.Close()
	dir, err := h.postgresDir()
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), os.RemoveAll(h.dir))
}
