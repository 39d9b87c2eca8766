package translog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

// guardAttempts is how often another process may replace the record between Load and Store.
const guardAttempts = 5

// errGuardConflict is returned if another replica has put a larger head into the record, or all
// attempts to replace the record failed. The publisher must then read the database again.
var errGuardConflict = fmt.Errorf("%w: another process changed the fork guard's record first", ErrUnavailable)

// advanceGuard stores r in the fork guard's record, or returns an error if the log must not sign r.
// If there is no record, mayAdopt decides. Otherwise there are three cases:
//   - r is larger than the record: tree must prove that r extends the record.
//   - r has the size of the record: the roots must be equal. After a crash, the same head may
//     be signed again.
//   - r is smaller than the record: r must not be signed. Either another replica has signed a
//     larger head, or the database has lost leaves.
func (p *publisher) advanceGuard(ctx context.Context, r root, tree *tree) error {
	if p.guard == nil {
		return nil
	}
	next := forkguard.Record{Size: r.size, Root: hex.EncodeToString(r.hash)}
	for range guardAttempts {
		loaded, err := p.guard.Load(ctx)
		if err != nil {
			return fmt.Errorf("%w: no head is signed without the fork guard: %w", ErrUnavailable, err)
		}
		there, err := p.compare(ctx, loaded, next, r, tree)
		if err != nil || there {
			return err
		}
		err = p.guard.Store(ctx, loaded, next)
		if err == nil {
			return nil
		}
		if !errors.Is(err, forkguard.ErrMoved) {
			return fmt.Errorf("%w: the fork guard was not advanced: %w", ErrUnavailable, err)
		}
	}
	return fmt.Errorf("%w: another program wrote the guard's record before each of %d attempts to replace it: let only log-servers of this log write the record (runbooks/fork-guard.md)", errGuardConflict, guardAttempts)
}

// compare reports whether the loaded record is r already. If compare returns an error, r must not
// replace the record. next is the record of r.
func (p *publisher) compare(ctx context.Context, loaded, next forkguard.Record, r root, tree *tree) (there bool, err error) {
	if loaded.Empty() {
		return false, p.mayAdopt(ctx, r)
	}
	hash, err := canon.ParseHash(loaded.Root)
	if err != nil {
		return false, fmt.Errorf("%w: the root in the fork guard's record has %w (runbooks/fork-guard.md)", ErrUnavailable, err)
	}
	recorded := root{size: loaded.Size, hash: hash[:]}
	switch {
	case r.size == recorded.size && next.Root == loaded.Root:
		return true, nil
	case r.size == recorded.size:
		return false, refuse("two roots of size %d: %s was signed, %s is in the database", r.size, loaded.Root, next.Root)
	case r.size < recorded.size:
		// The leaves under a head are committed before the record moves.
		committed, _, err := p.store.heads(ctx)
		if err != nil {
			return false, err
		}
		if committed.size < recorded.size {
			return false, refuse("the database is older than what was signed: it has %d leaves, but a head of size %d was signed", committed.size, recorded.size)
		}
		return false, fmt.Errorf("%w: the record has size %d, and the head of this replica has size %d", errGuardConflict, recorded.size, r.size)
	case recorded.size == 0:
		if !recorded.same(emptyRoot) {
			return false, refuse("the guard's record has size 0, but not the root of the empty tree")
		}
		return false, nil // every tree extends the empty tree
	}
	if _, err := tree.consistency(ctx, recorded, r); err != nil {
		if errors.Is(err, ErrInconsistent) {
			return false, refuse("the database's tree of size %d does not extend the signed one of size %d: %v", r.size, recorded.size, err)
		}
		return false, err
	}
	return false, nil
}

// mayAdopt decides whether a fork guard without a record accepts this database (Options.Adopt).
// The record may have been lost, and only the operator knows whether the database is complete.
func (p *publisher) mayAdopt(ctx context.Context, r root) error {
	_, newest, err := p.store.heads(ctx)
	if err != nil {
		return err
	}
	if newest == nil || newest.TreeSize == 0 {
		return nil
	}
	if p.adopt == nil {
		return refuse("the guard has no record, and a head of size %d is published: make sure that the database is the newest copy, then start log-server with FAIRPACT_FORK_GUARD_INIT=%[1]d", newest.TreeSize)
	}
	if *p.adopt != newest.TreeSize {
		return refuse("the guard has no record, and a head of size %d is published, but FAIRPACT_FORK_GUARD_INIT is %d (wrong or outdated): make sure that the database is the newest copy, then start log-server with FAIRPACT_FORK_GUARD_INIT=%[1]d", newest.TreeSize, *p.adopt)
	}
	p.checks.logger.Warn("the fork guard had no record and adopts the database, as FAIRPACT_FORK_GUARD_INIT says", "tree_size", r.size, "published", newest.TreeSize)
	return nil
}

func refuse(format string, args ...any) error {
	guardRefusals.Inc()
	return fmt.Errorf("%w: %w: %s (runbooks/fork-guard.md)", ErrInconsistent, errGuarded, fmt.Sprintf(format, args...))
}

// errGuarded marks a refusal by the fork guard. The error also wraps ErrInconsistent, so that
// waiting appends fail at once, but it is not counted as a contradiction.
var errGuarded = errors.New("the fork guard refuses the new head")
