package translog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

// guardAttempts is how often another process may replace the record between Load and Store.
const guardAttempts = 5

// errGuardConflict is returned if another replica changed the record: read the database again.
var errGuardConflict = fmt.Errorf("%w: another process changed the fork guard's record first", ErrUnavailable)

// none is the identity of no guard.
const none = ""

// sameGuard returns an error if the log is signed under another guard.
func (p *publisher) sameGuard(guard string) error {
	if p.logGuard == none || p.logGuard == guard {
		return nil
	}
	here := "has none: set FAIRPACT_FORK_GUARD as in the cluster that signs this log"
	if guard != none {
		here = "has the fork guard " + guard + ": if another cluster signs this log, stop this log-server"
	}
	return refuse("the log is signed under the fork guard %s, and this log-server %s; otherwise move the log to this guard", p.logGuard, here)
}

// claim makes the guard the log's, if the log has none.
func (p *publisher) claim(ctx context.Context, guard string) error {
	if p.logGuard == guard {
		return nil
	}
	if err := MoveGuard(ctx, p.store.pool, none, guard); err != nil && !errors.Is(err, ErrRefused) {
		return err
	}
	var err error
	if p.logGuard, err = GuardOf(ctx, p.store.pool); err != nil {
		return err
	}
	return p.sameGuard(guard)
}

// GuardOf returns the identity of the fork guard under which the log is signed, or "" if the log has none.
func GuardOf(ctx context.Context, pool *pgxpool.Pool) (guard string, err error) {
	err = pool.QueryRow(ctx, sqlGuard).Scan(&guard)
	return guard, fromDatabase(err)
}

// MoveGuard makes the log accept heads only under the guard `to`. It returns ErrRefused if the log's guard is
// not `from`. The log-servers of the guard `from` then refuse to sign.
func MoveGuard(ctx context.Context, pool *pgxpool.Pool, from, to string) error {
	tag, err := pool.Exec(ctx, sqlMoveGuard, from, to)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: the log's fork guard is not %q", ErrRefused, from)
	}
	return fromDatabase(err)
}

// advanceGuard stores r in the fork guard's record, or returns an error if the log must not sign r. If there
// is no record, mayAdopt decides. tree must prove that a larger r extends the record. An r of the same size
// must be equal: after a crash, the same head may be signed again. A smaller r must not be signed, because
// another replica has signed a larger head, or the database has lost leaves.
func (p *publisher) advanceGuard(ctx context.Context, r root, tree *tree) error {
	if p.guard == nil {
		return p.sameGuard(none)
	}
	next := forkguard.Record{Size: r.size, Root: hex.EncodeToString(r.hash)}
	for range guardAttempts {
		loaded, err := p.guard.Load(ctx)
		if err != nil {
			return fmt.Errorf("%w: no head is signed without the fork guard: %w", ErrUnavailable, err)
		}
		if err := p.sameGuard(loaded.Guard); err != nil {
			return err
		}
		there, err := p.compare(ctx, loaded, next, r, tree)
		if err == nil {
			err = p.claim(ctx, loaded.Guard)
		}
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

// compare reports whether the record is r already. After an error, r must not replace the record.
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
		committed, _, _, err := p.store.heads(ctx)
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

// mayAdopt decides about a guard without a record: only the operator knows whether the database is complete.
func (p *publisher) mayAdopt(ctx context.Context, r root) error {
	_, newest, _, err := p.store.heads(ctx)
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

// errGuarded marks a refusal by the fork guard, which is not counted as a contradiction.
var errGuarded = errors.New("the fork guard refuses the new head")
