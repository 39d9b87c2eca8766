package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

var hasher = rfc6962.DefaultHasher

// TreeHead is a published head, in the form that verifiers of certificates use.
type TreeHead = certificate.TreeHead

// root is an unsigned head: the size and root hash of a tree.
type root struct {
	size int64
	hash []byte
}

var emptyRoot = root{size: 0, hash: hasher.EmptyRoot()}

func (r root) head(signature string) TreeHead {
	return TreeHead{TreeSize: r.size, RootHash: hex.EncodeToString(r.hash), Signature: signature}
}

func (r root) same(other root) bool { return r.size == other.size && bytes.Equal(r.hash, other.hash) }

// treeOf turns a malformed root hash into the zero hash, which is the root of no tree.
func treeOf(h TreeHead) root {
	hash, _ := canon.ParseHash(h.RootHash)
	return root{size: h.TreeSize, hash: hash[:]}
}

// Signer signs the digest of a head. *signing.Ring implements it.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

type checks struct {
	keys     *signing.KeySet
	logger   *slog.Logger
	failures atomic.Int64
}

// errRetired is returned for a head larger than the TreeSize of the closed key that signed it.
// Its root may be right: TreeSize may have been set after the key signed the head.
var errRetired = errors.New("no verifier accepts the head")

func (c *checks) head(h TreeHead) error {
	key, err := c.keys.SignerOf(h.Message(), h.Signature)
	if err != nil {
		return fmt.Errorf("%w: the stored head of size %d cannot be verified: %w (if a retired key signed it, add the key to the key set file)", ErrInconsistent, h.TreeSize, err)
	}
	if !key.MaySignLeaf(h.TreeSize - 1) {
		return fmt.Errorf("%w: the stored head of size %d is signed by the key %s, which retired at tree size %d: %w", ErrInconsistent, h.TreeSize, key.Label, *key.TreeSize, errRetired)
	}
	return nil
}

// recordFailure logs and counts a contradiction, and returns err unchanged.
func (c *checks) recordFailure(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errGuarded):
		c.logger.ErrorContext(ctx, "no head is signed", "err", err)
	case errors.Is(err, ErrInconsistent):
		c.failures.Add(1)
		proofFailures.Inc()
		c.logger.ErrorContext(ctx, "the log contradicts itself", "err", err)
	}
	return err
}

// CheckClosed returns an error if a closed key that is not disowned signed a head larger than its TreeSize.
// For each key it checks only the `limit` smallest heads above TreeSize.
func CheckClosed(ctx context.Context, pool *pgxpool.Pool, list keys.List, limit int64) error {
	if err := schema.Current(ctx, pool); err != nil {
		return err
	}
	for _, key := range list {
		if !key.Closed() || key.Disowned {
			continue
		}
		rows, _ := pool.Query(ctx, sqlHeadsAbove, *key.TreeSize, limit)
		heads, err := pgx.CollectRows(rows, scanHead)
		if err != nil {
			return fromDatabase(err)
		}
		for _, head := range heads {
			if key.Verify(head.Message(), head.Signature) == nil {
				return fmt.Errorf("the key set closes %s at tree size %d, but that key signed the head of size %d: set the key's tree_size to %d or more; if the key was stolen and that head must not count, set \"disowned\":true",
					key.Label, *key.TreeSize, head.TreeSize, head.TreeSize)
			}
		}
	}
	return nil
}

type store struct{ pool *pgxpool.Pool }

// heads makes one round trip. newest is nil if no head is published. guard is the identity of the log's fork guard.
func (s *store) heads(ctx context.Context) (committed root, newest *TreeHead, guard string, err error) {
	batch := &pgx.Batch{}
	// Otherwise the log could sign a head whose leaves are lost in a failover to the standby. The
	// fork guard's record of that head would then block new heads for ever.
	batch.Queue(sqlReplicated)
	// The published head is read before the committed head, so the committed head is at least as new.
	batch.Queue(sqlNewestHead).Query(func(rows pgx.Rows) error {
		heads, err := pgx.CollectRows(rows, scanHead)
		if len(heads) > 0 {
			newest = &heads[0]
		}
		return err
	})
	batch.Queue(sqlCommittedHead).QueryRow(func(row pgx.Row) error {
		return row.Scan(&committed.size, &committed.hash, nil)
	})
	batch.Queue(sqlGuard).QueryRow(func(row pgx.Row) error { return row.Scan(&guard) })
	err = s.pool.SendBatch(ctx, batch).Close()
	return committed, newest, guard, fromDatabase(err)
}

func scanHead(row pgx.CollectableRow) (TreeHead, error) {
	var r root
	var signature string
	err := row.Scan(&r.size, &r.hash, &signature)
	return r.head(signature), err
}

// insertHead returns the stored head of the size, or pgx.ErrNoRows if the database lacks the entry `last` or
// names another guard.
func (s *store) insertHead(ctx context.Context, head TreeHead, last []byte, guard string) (TreeHead, error) {
	r := treeOf(head)
	digest := head.Digest()
	tag, err := s.pool.Exec(ctx, sqlInsertHead, r.size, r.hash, digest[:], head.Signature, last, guard)
	if err != nil || tag.RowsAffected() == 1 {
		return head, fromDatabase(err)
	}
	rows, _ := s.pool.Query(ctx, sqlHeadAt, head.TreeSize)
	stored, err := pgx.CollectExactlyOneRow(rows, scanHead)
	return stored, fromDatabase(err)
}

// readTiles reads the complete nodes of tiles in one round trip, or returns ErrInconsistent.
func (s *store) readTiles(ctx context.Context, size uint64, ids []tileID) ([]*tile, error) {
	tiles := make([]*tile, len(ids))
	batch := &pgx.Batch{}
	for i, id := range ids {
		first, end := id.span(size)
		var queued *pgx.QueuedQuery
		if id.level == 0 {
			queued = batch.Queue(sqlLeavesBetween, int64(first), int64(end))
		} else {
			queued = batch.Queue(sqlNodesBetween, int64(first), int64(end), int16(id.level))
		}
		queued.Query(func(rows pgx.Rows) error {
			hashes, err := collect(rows, id.level, first, end)
			if id.level == 0 {
				for n, entry := range hashes {
					hashes[n] = hasher.HashLeaf(entry)
				}
			}
			tiles[i] = newTile(id, hashes)
			return err
		})
	}
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fromDatabase(err)
	}
	return tiles, nil
}

func (s *store) readEntries(ctx context.Context, first, end uint64) ([][]byte, error) {
	rows, _ := s.pool.Query(ctx, sqlLeavesBetween, int64(first), int64(end)) // collect returns the error of Query
	entries, err := collect(rows, 0, first, end)
	return entries, fromDatabase(err)
}

// collect returns the values of rows whose indexes must be first, …, end-1.
func collect(rows pgx.Rows, level uint, first, end uint64) ([][]byte, error) {
	var index int64
	var value []byte
	values := make([][]byte, 0, end-first)
	next := first
	_, err := pgx.ForEachRow(rows, []any{&index, &value}, func() error {
		if uint64(index) != next {
			return missing(level, next)
		}
		values = append(values, slices.Clone(value))
		next++
		return nil
	})
	if err == nil && next != end {
		err = missing(level, next)
	}
	return values, err
}

func missing(level uint, index uint64) error {
	return fmt.Errorf("%w: the row of node %d at level %d is missing", ErrInconsistent, index, level)
}
