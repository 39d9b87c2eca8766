// Package forkguard keeps the record of the fork guard: the largest tree head that may be signed.
package forkguard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// ErrMoved is returned when the record was replaced since it was loaded. Load it again.
var ErrMoved = errors.New("the fork guard was advanced by another publisher")

// Record is the tree head that a guard keeps. Root is empty if no head was ever recorded.
type Record struct {
	Size int64
	Root string // 64 lower-case hex digits
	// Guard identifies the guard from which Load read the record. A copy of the record in another guard
	// does not have the same identity. Store ignores Guard.
	Guard string

	state string // the whole file or ConfigMap as Load read it, for the compare-and-swap in Store
}

// Empty reports whether no head was ever recorded.
func (r Record) Empty() bool { return r.Root == "" }

const restoreRecord = "restore the record from the newest tree head that any client received"

func (r Record) check() error {
	if _, err := canon.ParseHash(r.Root); err != nil || r.Size < 0 {
		return fmt.Errorf("the fork guard's record (size %d, root %.80q) is not a tree head: %s", r.Size, r.Root, restoreRecord)
	}
	return nil
}

// Guard keeps one record that changes only by compare-and-swap.
type Guard interface {
	Load(ctx context.Context) (Record, error)
	// Store replaces the record. It returns ErrMoved if the record is no longer what Load returned.
	// After any other error the record may or may not have been replaced.
	Store(ctx context.Context, loaded, next Record) error
	Close() error
}

// Open returns the guard for a URI. file://PATH works for a single log-server. kubernetes://NAMESPACE/NAME
// names a ConfigMap, and postgres://… a database of its own. These two work for any number of log-servers.
func Open(uri string) (Guard, error) {
	scheme, rest, _ := strings.Cut(uri, "://")
	switch scheme {
	case "file":
		return openFile(rest)
	case "kubernetes":
		return openKubernetes(rest)
	case "postgres", "postgresql":
		return openPostgres(uri)
	}
	return nil, errors.New("the URI of the fork guard (not shown, because it may hold a password) begins with no known scheme: write file://PATH (one log-server), kubernetes://NAMESPACE/NAME (a ConfigMap) or postgres://USER:PASSWORD@HOST:PORT/NAME (a database that holds nothing else)")
}

// file keeps the record in a JSON file. It locks a second file, PATH.lock, until Close or the end
// of the process, so that only one log-server publishes heads. PATH.lock holds the identity, so that a copy
// of the record elsewhere is another guard.
type file struct {
	path, identity string
	lock           *os.File
}

func openFile(path string) (*file, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the fork guard file://%s is not an absolute path: write file:///PATH, and choose a disk that does not hold the database", path)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the fork guard's lock file: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("the fork guard %s is locked by another log-server (%w): stop the other log-server, or use kubernetes://NAMESPACE/NAME", path, err)
	}
	f := &file{path: path, lock: lock}
	if err := f.identify(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Load(context.Background()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// identify reads the identity, or makes one at the first use and if a crash cut its text short.
func (f *file) identify() error {
	text, err := io.ReadAll(f.lock)
	if err == nil && len(text) < len(rand.Text()) {
		text = []byte(rand.Text())
		_, err = f.lock.WriteAt(text, 0)
		err = errors.Join(err, f.lock.Sync())
	}
	if err != nil {
		return fmt.Errorf("cannot read or write the fork guard's identity: %w", err)
	}
	f.identity = strings.TrimSpace(string(text))
	return nil
}

func (f *file) Close() error { return f.lock.Close() }

type fileForm struct {
	Size *int64 `json:"size"`
	Root string `json:"root"`
}

func (f *file) Load(context.Context) (Record, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{Guard: f.identity}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("cannot read the fork guard: %w", err)
	}
	var form fileForm
	if err := json.Unmarshal(text, &form); err != nil || form.Size == nil {
		return Record{}, fmt.Errorf("the fork guard %s is not {\"size\":…,\"root\":…}: %s", f.path, restoreRecord)
	}
	record := Record{Size: *form.Size, Root: form.Root, Guard: f.identity, state: string(text)}
	return record, record.check()
}

func (f *file) Store(ctx context.Context, loaded, next Record) error {
	now, err := f.Load(ctx)
	if err != nil {
		return err
	}
	if now.state != loaded.state {
		return ErrMoved
	}
	text, err := json.Marshal(fileForm{&next.Size, next.Root})
	if err != nil {
		return err
	}
	if err := files.Replace(f.path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("cannot write the fork guard: %w", err)
	}
	return nil
}
