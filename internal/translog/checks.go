package translog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/fairpact/fairpact/internal/signing"
)

// Signer signs the digest of a head. *signing.Signer implements it.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

type checks struct {
	keys     *signing.KeySet
	logger   *slog.Logger
	failures atomic.Int64
}

// errRetired is returned for a tree head larger than the TreeSize of the retired key that signed
// it. Verifiers refuse such a head, although its root may be right: TreeSize may have been set
// after the key signed the head.
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

// recordFailure logs and counts a contradiction in the log, and returns err unchanged. A refusal by
// the fork guard is only logged, because publishFailures counts the failed attempt to publish a
// head.
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
