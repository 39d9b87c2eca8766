package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
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

// Signer signs the digest of a head. *signing.Signer implements it.
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

// recordFailure logs and counts a contradiction, and returns err unchanged. A refusal by the fork
// guard is only logged, because publishFailures counts the failed round.
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

// CheckClosed returns an error if a closed key signed a head larger than the key's TreeSize:
// certificates under that head would no longer verify. It skips disowned keys. For each key it
// checks only the `limit` smallest heads above TreeSize.
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
