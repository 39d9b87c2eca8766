package translog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

const publishTimeout = 30 * time.Second

// round publishes a head that covers the committed leaves. After an error, size may be 0.
func (p *publisher) round(ctx context.Context) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ctx, span := tracer.Start(ctx, "publish head")
	defer span.End()

	p.mu.Lock()
	batch := p.lastBatch
	p.mu.Unlock()
	known := p.proven
	p.proven = nil
	if known != nil && batch != nil && batch.to.size > known.size {
		if _, err = p.tree.consistency(ctx, *known, batch.to.root); err == nil {
			var head TreeHead
			head, err = p.sign(ctx, batch.to.root, p.tree, batch.entries[len(batch.entries)-1])
			size = head.TreeSize
		}
		if err == nil {
			p.proven = &batch.to.root
		}
		if !errors.Is(err, ErrInconsistent) {
			return size, err
		}
		// The tree in memory may be wrong, so read the tables.
	}
	committed, size, err := p.roundFromTables(ctx)
	if err == nil {
		p.proven = &committed
	}
	return size, err
}

// roundFromTables signs the committed head if it is larger than the newest published one and extends it.
func (p *publisher) roundFromTables(ctx context.Context) (committed root, size int64, err error) {
	committed, newest, err := p.store.heads(ctx)
	if err != nil {
		return root{}, 0, err
	}
	tree := freshTree(p.store)
	sizeCommitted.Set(float64(committed.size))
	if newest == nil {
		first, err := p.sign(ctx, emptyRoot, tree, nil)
		if err != nil {
			return root{}, 0, err
		}
		newest = &first
	}
	if seen := p.seen(); committed.size < seen {
		if p.guard != nil { // the guard would refuse the next head, so return the guard's error now
			return root{}, 0, refuse("the database is older than what was signed: it has %d leaves, but this process has seen a head of size %d", committed.size, seen)
		}
		return root{}, 0, fmt.Errorf("%w: the database has %d leaves, but this process has seen a head of size %d: the database is an older copy; restore the newer one (runbooks/restore.md)", ErrInconsistent, committed.size, seen)
	}
	if err := p.extends(ctx, *newest, committed, tree); err != nil {
		return root{}, 0, err
	}
	if committed.size == newest.TreeSize {
		if !p.guardAccepted { // before the first append, detect a database restored from an old backup
			if err := p.advanceGuard(ctx, committed, tree); err != nil {
				return root{}, newest.TreeSize, err
			}
			p.guardAccepted = true
		}
		return committed, newest.TreeSize, nil
	}
	head, err := p.sign(ctx, committed, tree, nil)
	if errors.Is(err, errUnsigned) {
		return root{}, newest.TreeSize, err
	}
	p.guardAccepted = p.guardAccepted || err == nil
	return committed, head.TreeSize, err
}

func (p *publisher) extends(ctx context.Context, head TreeHead, committed root, tree *tree) error {
	// A head that a retired key signed is accepted, because the current key signs the next head.
	if err := p.checks.head(head); err != nil && !errors.Is(err, errRetired) {
		return err
	}
	old := treeOf(head)
	switch {
	case committed.size < old.size:
		return fmt.Errorf("%w: %d leaves are committed, fewer than the %d published", ErrInconsistent, committed.size, old.size)
	case committed.same(old):
		return nil
	case committed.size == old.size:
		return fmt.Errorf("%w: the committed root of size %d is not the published one", ErrInconsistent, old.size)
	case old.size == 0: // a consistency proof from the empty tree proves nothing
		return tree.follow(ctx, committed)
	}
	_, err := tree.consistency(ctx, old, committed)
	return err
}

// sign signs and stores the head of the root r. `last` is the entry of the last leaf under the head, or nil
// if unknown: if the database has no such leaf, sign returns ErrInconsistent.
func (p *publisher) sign(ctx context.Context, r root, tree *tree, last []byte) (TreeHead, error) {
	head := r.head("")
	digest := head.Digest()

	if err := p.advanceGuard(ctx, r, tree); err != nil {
		return TreeHead{}, err
	}
	crash.Point("log.guarded")

	signature, err := p.signer.Sign(ctx, digest)
	if err != nil {
		return TreeHead{}, fmt.Errorf("sign the head of size %d: %w: %w", r.size, errUnsigned, err)
	}
	key, err := p.checks.keys.SignedBy(digest, signature)
	if err == nil && key.Closed() {
		err = fmt.Errorf("the signature is by %s, a closed key, which must not sign a new head", key.Label)
	}
	if err != nil {
		return TreeHead{}, fmt.Errorf("sign the head of size %d: verify the signature: %w", r.size, err)
	}
	crash.Point("log.signed")

	head.Signature = signature
	stored, err := p.store.insertHead(ctx, head, last)
	if errors.Is(err, pgx.ErrNoRows) {
		return TreeHead{}, fmt.Errorf("%w: the database no longer has the last leaf under the head of size %d", ErrInconsistent, r.size)
	}
	if err != nil {
		return TreeHead{}, err
	}
	if stored.RootHash != head.RootHash {
		return TreeHead{}, fmt.Errorf("%w: two roots of size %d: %s is published, %s is committed", ErrInconsistent, r.size, stored.RootHash, head.RootHash)
	}
	if err := p.checks.head(stored); err != nil {
		return TreeHead{}, err
	}
	crash.Point("log.published")

	return stored, nil
}

// guardAttempts is how often another process may replace the record between Load and Store.
const guardAttempts = 5

// errGuardConflict is returned if another replica changed the record: read the database again.
var errGuardConflict = fmt.Errorf("%w: another process changed the fork guard's record first", ErrUnavailable)

// advanceGuard stores r in the fork guard's record, or returns an error if the log must not sign r. If there
// is no record, mayAdopt decides. tree must prove that a larger r extends the record. An r of the same size
// must be equal: after a crash, the same head may be signed again. A smaller r must not be signed, because
// another replica has signed a larger head, or the database has lost leaves.
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

// mayAdopt decides about a guard without a record: only the operator knows whether the database is complete.
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

// errGuarded marks a refusal by the fork guard, which is not counted as a contradiction.
var errGuarded = errors.New("the fork guard refuses the new head")
