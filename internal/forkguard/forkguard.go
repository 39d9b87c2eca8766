// Package forkguard keeps the one record of the biggest tree head that was ever
// signed, apart from the log's database, so that a database which was restored
// from a backup, or a replica that lags, cannot make a second history.
package forkguard

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ErrMoved: the record is not the one that was loaded: another publisher
// advanced it. Load it again.
var ErrMoved = errors.New("the fork guard was advanced by another publisher")

// Record is what a guard holds. Root is empty where nothing was ever recorded.
type Record struct {
	Size int64
	Root string // 64 lower-case hex digits

	state string // of the backend, as it was loaded
}

// Empty tells that nothing was ever recorded.
func (r Record) Empty() bool { return r.Root == "" }

func (r Record) check() error {
	if raw, err := hex.DecodeString(r.Root); err != nil || len(raw) != 32 || r.Size < 0 || strings.ToLower(r.Root) != r.Root {
		return fmt.Errorf("the fork guard's record (size %d, root %.80q) is no tree head: restore it from the newest head that anyone was answered", r.Size, r.Root)
	}
	return nil
}

// Guard is one record that is changed by compare-and-swap.
type Guard interface {
	// Load reads the record again.
	Load(ctx context.Context) (Record, error)
	// Store replaces the loaded record. It gives ErrMoved where the record is no
	// longer that one; after any other error the outcome may be either.
	Store(ctx context.Context, loaded, next Record) error
	Close() error
}

// Open gives the guard that a URI names: file://PATH for the one publisher of a
// machine, or kubernetes://NAMESPACE/NAME, a ConfigMap, for any number.
func Open(uri string) (Guard, error) {
	scheme, rest, _ := strings.Cut(uri, "://")
	switch scheme {
	case "file":
		return openFile(rest)
	case "kubernetes":
		return openKubernetes(rest)
	}
	return nil, errors.New("the fork guard is file://PATH (one log-server) or kubernetes://NAMESPACE/NAME (a ConfigMap, any number)")
}
