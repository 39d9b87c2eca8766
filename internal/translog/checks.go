package translog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/fairpact/fairpact/internal/signing"
)

// Signer signs the digest of a head: internal/signing has the real one.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

// KeySet is the trusted keys, current and retired. It comes from configuration.
type KeySet interface {
	// SignerOf returns the key of a labelled signature over a message, of any scheme.
	SignerOf(message []byte, signature string) (signing.Key, error)
	// SignedBy returns the key of an es256 signature over a SHA-256 digest.
	SignedBy(digest [32]byte, signature string) (signing.Key, error)
}

// checks verifies heads and counts contradictions.
type checks struct {
	keys     KeySet
	logger   *slog.Logger
	failures atomic.Int64
	// verified are the last heads that verified under keys, each at its size modulo
	// the length. They save the curve arithmetic for the very same bytes, so they
	// hide no change of a stored head.
	verified [8]atomic.Pointer[TreeHead]
}

// errRetired marks a head that its key was no longer to sign, also where it did
// and was closed below it afterwards. Every verifier refuses it; what it says of
// the tree may be true all the same.
var errRetired = errors.New("no verifier accepts it")

// head verifies the head's signature under the key set, by a key that may have
// signed a head of its size.
func (c *checks) head(h TreeHead) error {
	memo := &c.verified[uint64(h.TreeSize)%uint64(len(c.verified))]
	if last := memo.Load(); last != nil && *last == h {
		return nil
	}
	key, err := c.keys.SignerOf(h.Message(), h.Signature)
	if err != nil {
		return fmt.Errorf("%w: the stored head of size %d: %w (if its key was retired, list it as a legacy key)", ErrInconsistent, h.TreeSize, err)
	}
	if !key.MayHold(h.TreeSize - 1) {
		return fmt.Errorf("%w: the stored head of size %d is by %s, which retired at tree size %d: %w", ErrInconsistent, h.TreeSize, key.PublicKey, *key.TreeSize, errRetired)
	}
	memo.Store(&h)
	return nil
}

// note counts and logs err where it is a contradiction, and passes it on. What
// the fork guard refuses has a counter of its own: no proof was wrong.
func (c *checks) note(ctx context.Context, err error) error {
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
