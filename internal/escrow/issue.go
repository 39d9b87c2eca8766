package escrow

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
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
	// A stored signature that verifies under no key of the set, and has no leaf,
	// is replaced; if somebody else replaced it first, theirs stands.
	if c.Signature == nil || s.keys.Verify(c.Payload, *c.Signature) != nil {
		if c, err = s.sign(ctx, c); err != nil {
			return err
		}
	}
	index, key, err := s.logged(ctx, c)
	// So is one by a key that was retired in between, where the log did not take
	// it or has it where that key may hold no leaf. The leaf is a digest, the same
	// under either signature; and nobody was given the old one, as a certificate
	// without a stored leaf is handed out nowhere.
	late := err == nil && !key.MayHold(index)
	if late || errors.Is(err, translog.ErrRefused) && key.State != signing.StateCurrent {
		if c, err = s.sign(ctx, c); err != nil {
			return err
		}
		if index, _, err = s.logged(ctx, c); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	crash.Point("escrow.appended")
	published, err := s.store.SetLeaf(ctx, certID, index)
	if err != nil {
		return err
	}
	if published {
		certificatesIssued.Inc()
	}
	crash.Point("escrow.published")
	return nil
}

// sign stores a new signature in the place of the one that c was read with,
// unless somebody replaced that or published the certificate, and reads it again.
func (s *Service) sign(ctx context.Context, c *store.Certificate) (*store.Certificate, error) {
	if !hmac.Equal(c.MAC, s.payloadMAC(c.CertID, c.Payload)) {
		return nil, fmt.Errorf("certificate %s was not written by this service, or under another server secret: it is never signed", c.CertID)
	}
	signature, err := s.signer.Sign(ctx, certificate.Entry(c.Payload))
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	crash.Point("escrow.signed")
	if err := s.store.SetSignature(ctx, c.CertID, signature, c.Signature); err != nil {
		return nil, err
	}
	if c, err = s.store.Certificate(ctx, c.CertID); err != nil {
		return nil, err
	}
	crash.Point("escrow.signature-stored")
	return c, nil
}

// logged appends the certificate's digest with its stored signature and gives
// the index of its leaf and the key of the signature.
func (s *Service) logged(ctx context.Context, c *store.Certificate) (int64, signing.Key, error) {
	if c.Signature == nil {
		return 0, signing.Key{State: signing.StateCurrent}, fmt.Errorf("certificate %s has lost its signature", c.CertID)
	}
	key, err := s.keys.SignerOf(c.Payload, *c.Signature)
	if err != nil {
		return 0, key, fmt.Errorf("certificate %s: its signature was replaced by one that does not verify: %w", c.CertID, err)
	}
	index, err := s.log.Append(ctx, certificate.Entry(c.Payload), *c.Signature)
	if err != nil {
		return 0, key, fmt.Errorf("transparency log: %w", err)
	}
	return index, key, nil
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
