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
	// Verify checks a labelled signature over a message, by any key and scheme.
	Verify(message []byte, signature string) error
	// SignedBy gives the key of an es256 signature over a SHA-256 digest.
	SignedBy(digest [32]byte, signature string) (signing.Key, error)
}

// checks verifies heads and counts contradictions.
type checks struct {
	keys     KeySet
	logger   *slog.Logger
	failures atomic.Int64
	// verified is the last head that verified. It saves the curve arithmetic for
	// the very same bytes, so it hides no change of a stored head.
	verified atomic.Pointer[TreeHead]
}

// head verifies the head's signature under the key set.
func (c *checks) head(h TreeHead) error {
	if last := c.verified.Load(); last != nil && *last == h {
		return nil
	}
	if err := c.keys.Verify(h.Message(), h.Signature); err != nil {
		return fmt.Errorf("%w: the stored head of size %d: %w (if its key was retired, list it as a legacy key)", ErrInconsistent, h.TreeSize, err)
	}
	c.verified.Store(&h)
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
