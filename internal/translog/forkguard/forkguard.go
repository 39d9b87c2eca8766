// Package forkguard keeps the record of the fork guard: the largest tree head that may be signed.
package forkguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Open returns the guard for a URI. file://PATH works for a single log-server.
// kubernetes://NAMESPACE/NAME names a ConfigMap and works for any number of log-servers.
func Open(uri string) (Guard, error) {
	scheme, rest, _ := strings.Cut(uri, "://")
	switch scheme {
	case "file":
		return openFile(rest)
	case "kubernetes":
		return openKubernetes(rest)
	}
	return nil, fmt.Errorf("unknown fork guard %.80q: write file://PATH (one log-server) or kubernetes://NAMESPACE/NAME (a ConfigMap, any number of log-servers)", uri)
}

// file keeps the record in a JSON file. It locks a second file, PATH.lock, until Close or the end
// of the process, so that only one log-server publishes heads.
type file struct {
	path string
	lock *os.File
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
	if _, err := f.Load(context.Background()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *file) Close() error { return f.lock.Close() }

type fileForm struct {
	Size *int64 `json:"size"`
	Root string `json:"root"`
}

func (f *file) Load(context.Context) (Record, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("cannot read the fork guard: %w", err)
	}
	var form fileForm
	if err := json.Unmarshal(text, &form); err != nil || form.Size == nil {
		return Record{}, fmt.Errorf("the fork guard %s is not {\"size\":…,\"root\":…}: %s", f.path, restoreRecord)
	}
	record := Record{Size: *form.Size, Root: form.Root, state: string(text)}
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
