package escrow

import (
	"context"
	"crypto/hmac"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/crash"
)

// issueBounded issues within a request. What fails here the worker finishes.
func (s *Service) issueBounded(ctx context.Context, certID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issueBound)
	defer cancel()
	if err := s.issue(ctx, certID); err != nil {
		s.logger.WarnContext(ctx, "certificate pending", "cert_id", certID, "error", err.Error())
	}
}

// issue takes a certificate from wherever it was left to published:
//
//	stored unsigned -> signature stored -> entry in the log -> leaf index stored
//
// Each step can be repeated: the first signature stored wins, the log finds an
// entry that it holds, the first leaf index stored stays. So any number of
// processes may be at it; the lock in Redis only saves them the work.
func (s *Service) issue(ctx context.Context, certID string) error {
	unlock, err := s.turn(ctx, certID)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := s.store.Certificate(ctx, certID)
	if err != nil || c.LeafIndex != nil {
		return err
	}
	entry := certificate.Entry(c.Payload)
	// A stored signature that verifies under no key of the set, and has no leaf,
	// is replaced; if somebody else replaced it first, theirs stands.
	if c.Signature == nil || s.keys.Verify(c.Payload, *c.Signature) != nil {
		if !hmac.Equal(c.MAC, s.payloadMAC(certID, c.Payload)) {
			return fmt.Errorf("certificate %s was not written by this service, or under another server secret: it is never signed", certID)
		}
		signature, err := s.signer.Sign(ctx, entry)
		if err != nil {
			return fmt.Errorf("signing: %w", err)
		}
		crash.Point("escrow.signed")
		if err := s.store.SetSignature(ctx, certID, signature, c.Signature); err != nil {
			return err
		}
		if c, err = s.store.Certificate(ctx, certID); err != nil {
			return err
		}
		crash.Point("escrow.signature-stored")
	}
	if c.Signature == nil {
		return fmt.Errorf("certificate %s has lost its signature", certID)
	}
	index, err := s.log.Append(ctx, entry, *c.Signature)
	if err != nil {
		return fmt.Errorf("transparency log: %w", err)
	}
	crash.Point("escrow.appended")
	if err := s.store.SetLeaf(ctx, certID, index); err != nil {
		return err
	}
	crash.Point("escrow.published")
	return nil
}

// turn waits while another process issues the same certificate, at most the
// lock's own lifetime; without Redis it does not wait.
func (s *Service) turn(ctx context.Context, certID string) (unlock func(), err error) {
	for {
		if unlock, free := s.redis.Lock(ctx, "issue:"+certID, issueBound); free {
			return unlock, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another process is issuing certificate %s: %w", certID, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
