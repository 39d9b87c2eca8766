package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/service"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

// processes returns the running processes, which name themselves in their connections to the databases.
func (r databases) processes(ctx context.Context) (found []service.Process, err error) {
	seen := map[string]bool{}
	for _, url := range []string{r.DatabaseURL, r.LogDatabaseURL} {
		if url == "" {
			continue
		}
		pool, err := database.Open(ctx, url, 1)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		names, err := store.Applications(ctx, pool)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if p, ok := service.ParseApplicationName(name); ok && !seen[name] { // skip duplicates: both URLs may name the same database
				found = append(found, p)
			}
			seen[name] = true
		}
	}
	return found, nil
}

// haveKeySet checks that all processes have the key set with this digest or, if digest is "",
// the same key set. For err, see agree.
func haveKeySet(processes []service.Process, err error, digest string) verification.Check {
	for _, p := range processes {
		digest = cmp.Or(digest, p.KeySet)
	}
	return agree(processes, err, "key set", digest, func(p service.Process) string { return p.KeySet })
}

// haveSecrets skips log-server, which has no server secret.
func haveSecrets(processes []service.Process, err error, digest string) verification.Check {
	processes = slices.DeleteFunc(processes, func(p service.Process) bool { return p.Binary == "log-server" })
	return agree(processes, err, "set of server secrets", digest, func(p service.Process) string { return p.Secrets })
}

// agree checks that of(p) is the given digest for every process p. err says why the processes could not be
// listed.
func agree(processes []service.Process, err error, what, digest string, of func(service.Process) string) verification.Check {
	if err == nil && len(processes) == 0 {
		err = errors.New("no process is connected to the database: correct --database-url")
	}
	kinds := map[string]int{}
	var lacking []string
	for _, p := range processes {
		kinds[p.Binary]++
		switch of(p) {
		case "": // also if digest is "", because then no process has named one
			lacking = append(lacking, fmt.Sprintf("%s %s names none", p.Binary, p.Host))
		case digest:
		default:
			lacking = append(lacking, fmt.Sprintf("%s %s has %q", p.Binary, p.Host, of(p)))
		}
	}
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%d of %d processes lack the %s %s: %s", len(lacking), len(processes), what, digest, strings.Join(lacking, ", "))
	}
	var counts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		counts = append(counts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return checked("processes", err, "%d run (%s), all with the %s %s", len(processes), strings.Join(counts, ", "), what, digest)
}

// beyond returns an error if a key's TreeSize (see keys.Key) invalidates a tree head or a
// certificate that the key signed. It skips disowned keys: for a stolen key this is intended.
func (r databases) beyond(ctx context.Context, set *keys.Set) error {
	pool, err := database.Open(ctx, r.log(), 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	const mostHeads = 50_000 // of each closed key; a head takes 0.1 ms, so a key at most 5 s
	list := set.At(time.Now().Unix())
	if err := translog.CheckClosed(ctx, pool, list, mostHeads); err != nil {
		return err
	}
	first := int64(math.MaxInt64)
	for _, key := range list {
		if key.Closed() && !key.Disowned {
			first = min(first, *key.TreeSize)
		}
	}
	return signedFrom(ctx, r.DatabaseURL, set, first, func(key keys.Key, leafIndex *int64) error {
		if leafIndex == nil || key.MaySignLeaf(*leafIndex) || key.Disowned {
			return nil
		}
		return fmt.Errorf("the key set closes %s at tree size %d, but that key signed the certificate at leaf %d, which makes the certificate invalid", key.Label, *key.TreeSize, *leafIndex)
	})
}

func pendingUnder(ctx context.Context, databaseURL, label string, set *keys.Set) (n int, err error) {
	err = signedFrom(ctx, databaseURL, set, math.MaxInt64, func(key keys.Key, leafIndex *int64) error {
		if leafIndex == nil && key.Label == label {
			n++
		}
		return nil
	})
	return n, err
}

// signedFrom calls `visit` for each signed certificate at leafIndex or above or without a leaf, with
// the key that signed it and its leaf index or nil. It skips a certificate that no accepted key of
// the set signed. After the first error of `visit`, it makes no further call and returns that error.
func signedFrom(ctx context.Context, databaseURL string, set *keys.Set, leafIndex int64, visit func(keys.Key, *int64) error) error {
	s, err := store.Open(ctx, databaseURL, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	var found error
	err = s.SignedFrom(ctx, leafIndex, func(c store.Certificate) {
		if key, err := set.SignerOf(c.Payload, *c.Signature, time.Now().Unix()); err == nil && found == nil {
			found = visit(key, c.LeafIndex)
		}
	})
	return errors.Join(err, found)
}
