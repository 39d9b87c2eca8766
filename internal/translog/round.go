package translog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/platform/crash"
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
	committed, newest, guard, err := p.store.heads(ctx)
	if err != nil {
		return root{}, 0, err
	}
	if guard != p.logGuard {
		p.logGuard, p.guardAccepted = guard, false
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
	stored, err := p.store.insertHead(ctx, head, last, p.logGuard)
	if errors.Is(err, pgx.ErrNoRows) {
		return TreeHead{}, fmt.Errorf("%w: the database no longer has the last leaf under the head of size %d, or the log was moved to another fork guard", ErrInconsistent, r.size)
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
