// Package forkguard keeps the record of the fork guard: the largest tree head that is signed or
// about to be signed.
package forkguard

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
