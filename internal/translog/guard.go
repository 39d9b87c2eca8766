package translog

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/forkguard"
)

// guardAttempts is how often one round tries to move the guard while other replicas move
// it.
const guardAttempts = 5

// errBehind is returned when another publisher of the same database was faster, or
// another program wrote the guard's record. The database must be read again.
var errBehind = fmt.Errorf("%w: the race for the fork guard was lost", ErrUnavailable)

// advanceGuard moves the guard's record to r, so that r may be signed, or refuses r.
//
// The record has size S and root R. It is the largest head that is signed or about to be
// signed. If r is larger than S, tree must prove that r extends the record. If r has size
// S, its root must be R: after a crash the same head may be signed again. If r is smaller
// than S, advanceGuard refuses r: another replica signed a larger head, or the database
// lost leaves.
func (p *publisher) advanceGuard(ctx context.Context, r root, tree *tree) error {
	if p.guard == nil {
		return nil
	}
	for range guardAttempts {
		loaded, err := p.guard.Load(ctx)
		if err != nil {
			return fmt.Errorf("%w: no head is signed without the fork guard: %w", ErrUnavailable, err)
		}
		there, err := p.compare(ctx, loaded, r, tree)
		if err != nil || there {
			return err
		}
		err = p.guard.Store(ctx, loaded, forkguard.Record{Size: r.size, Root: r.head("").RootHash})
		if err == nil {
			return nil
		}
		if !errors.Is(err, forkguard.ErrMoved) {
			return fmt.Errorf("%w: the fork guard was not advanced: %w", ErrUnavailable, err)
		}
	}
	return fmt.Errorf("%w: another program wrote the guard's record before each of %d attempts to move it: only log-servers of this log may write the record (runbooks/fork-guard.md)", errBehind, guardAttempts)
}

// compare reports whether the guard is already at r. If it returns an error, the guard must
// not be moved to r.
func (p *publisher) compare(ctx context.Context, loaded forkguard.Record, r root, tree *tree) (there bool, err error) {
	if loaded.Empty() {
		return false, p.mayAdopt(ctx, r)
	}
	hash, err := canon.ParseHash(loaded.Root)
	if err != nil {
		return false, fmt.Errorf("%w: the fork guard's root has %w (runbooks/fork-guard.md)", ErrUnavailable, err)
	}
	recorded := root{size: loaded.Size, hash: hash[:]}
	switch {
	case r.size == recorded.size && r.head("").RootHash == loaded.Root:
		return true, nil
	case r.size == recorded.size:
		return false, refuse("two roots of size %d: %s was signed, %s is in the database", r.size, loaded.Root, r.head("").RootHash)
	case r.size < recorded.size:
		// The guard moves to a head only after the head's leaves are committed. So a
		// database with fewer leaves has lost some.
		committed, _, err := p.store.heads(ctx)
		if err != nil {
			return false, err
		}
		if committed.size < recorded.size {
			return false, refuse("the database is older than what was signed: it has %d leaves, and a head of size %d was signed", committed.size, recorded.size)
		}
		return false, fmt.Errorf("%w: another replica has signed a larger head since", errBehind)
	case recorded.size == 0:
		if loaded.Root != emptyRoot.head("").RootHash {
			return false, refuse("its record of size 0 is not the empty tree")
		}
		return false, nil // p.extends has verified that the leaves lead to the root
	}
	if _, err := tree.consistency(ctx, recorded, r); err != nil {
		if errors.Is(err, ErrInconsistent) {
			return false, refuse("the database's tree of size %d does not extend the signed one of size %d: %v", r.size, recorded.size, err)
		}
		return false, err
	}
	return false, nil
}

// mayAdopt returns nil if an empty guard may start with this database: the log is new, or
// the operator has given the size of its newest head. If heads are published, the record
// may have been lost. Only the operator knows.
func (p *publisher) mayAdopt(ctx context.Context, r root) error {
	_, newest, err := p.store.heads(ctx)
	if err != nil {
		return err
	}
	if newest == nil || newest.TreeSize == 0 {
		return nil
	}
	if p.adopt == nil {
		return refuse("it has no record, and a head of size %d is published: make sure that the database is the newest one, then start with FAIRPACT_FORK_GUARD_INIT=%[1]d", newest.TreeSize)
	}
	if *p.adopt != newest.TreeSize {
		return refuse("it has no record, a head of size %d is published, but FAIRPACT_FORK_GUARD_INIT is %d: the record was lost after that was set; make sure that the database is the newest one, then start with FAIRPACT_FORK_GUARD_INIT=%[1]d", newest.TreeSize, *p.adopt)
	}
	p.checks.logger.Warn("the fork guard had no record and adopts the database, as FAIRPACT_FORK_GUARD_INIT says", "tree_size", r.size, "published", newest.TreeSize)
	return nil
}

func refuse(format string, args ...any) error {
	guardRefusals.Inc()
	return fmt.Errorf("%w: %w: %s (runbooks/fork-guard.md)", ErrInconsistent, errGuarded, fmt.Sprintf(format, args...))
}

// errGuarded marks a refusal by the fork guard. The published heads are still consistent.
var errGuarded = errors.New("the fork guard refuses to have a head signed")
