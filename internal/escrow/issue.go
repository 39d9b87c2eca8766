package escrow

import (
	"bytes"
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/translog"
)

// tryIssue issues a certificate within a call. After a failure, the worker issues it later.
func (s *Service) tryIssue(ctx context.Context, c *store.Certificate) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timelimits.Issue)
	defer cancel()
	err := s.issueCertificate(ctx, c)
	if err != nil {
		s.logger.WarnContext(ctx, "certificate pending", "cert_id", c.CertID, "err", err)
	}
	return err
}

// issueCertificate publishes a pending certificate. c is the certificate's row, as it was
// just read or written.
//
//	stored unsigned -> signed -> entry in the log -> signature and leaf stored
//
// After a crash or an outage, the next process continues:
//
//	interrupted after         state                      the next process
//	the deal's end            no signature               signs
//	the signature             no signature               signs again; nobody saw the first signature
//	an append that failed     signature stored; the      appends the same entry without a call to the
//	                          entry may be in the log    KMS; a log that has it returns its leaf
//	the append                leaf in the log, not in    signs again and appends: the log finds
//	                          the row                    the digest and returns the same leaf
//
// Several processes can issue the same certificate concurrently. The leaf does not depend on the
// signature. The first process that stores the leaf also stores its own signature, and no
// process replaces them later. No caller receives a certificate before its leaf is stored.
//
// If the log has another certificate of the deal, the deal's rows were changed or restored
// after that certificate was issued. Then issueCertificate returns translog.ErrTagTaken, and an
// operator must store the certificate that the log has (Adopt).
func (s *Service) issueCertificate(ctx context.Context, c *store.Certificate) error {
	_, err := once(ctx, &s.issues, c.CertID, func() (any, error) {
		if known, ok := s.contradicted.Get(c.DealID); ok && known.certID == c.CertID {
			return nil, known.err
		}
		err := s.issueOnce(ctx, c)
		if errors.Is(err, translog.ErrTagTaken) {
			s.contradicted.Add(c.DealID, contradiction{c.CertID, err})
			s.logger.ErrorContext(ctx, "the log has another certificate of this deal", "deal_id", c.DealID, "cert_id", c.CertID, "err", err)
		}
		return nil, err
	})
	return err
}

func (s *Service) issueOnce(ctx context.Context, c *store.Certificate) error {
	var signature string
	var facts checked
	var err error
	entry := c.Entry()
	if c.Signature != nil {
		signature = *c.Signature
		facts, err = s.check(c, entry)
	}
	if c.Signature == nil || err != nil { // not signed yet, or the stored signature is not valid
		if signature, facts, err = s.sign(ctx, c); err != nil {
			return err
		}
	}
	// facts.dealID is from the signed payload; somebody may have changed c.DealID in the database.
	tag := certificate.Tag(facts.dealID)
	index, err := s.log.Append(ctx, entry, signature, tag)
	// The key may have been closed (retired at a tree size) after it signed the certificate. Then
	// the signature is not valid for this leaf: sign again with the current key.
	if err == nil && !facts.key.MaySignLeaf(index) || errors.Is(err, translog.ErrRefused) && facts.key.State != keys.Current {
		if signature, _, err = s.sign(ctx, c); err != nil {
			return err
		}
		index, err = s.log.Append(ctx, entry, signature, tag)
	}
	if err != nil {
		// Keep the signature, so that the next try needs no call to the KMS. A second
		// certificate of the deal never gets a leaf, so its signature is not kept.
		if !errors.Is(err, translog.ErrTagTaken) && (c.Signature == nil || *c.Signature != signature) {
			keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), timelimits.Issue)
			defer cancel()
			if kept := s.store.SetSignature(keeping, c.CertID, signature, c.Signature); kept != nil {
				s.logger.WarnContext(ctx, "signature not stored", "cert_id", c.CertID, "err", kept)
			}
		}
		return fmt.Errorf("transparency log: %w", err)
	}
	crash.Point("escrow.appended")
	published, err := s.store.Publish(ctx, store.Publication{CertID: c.CertID, Signature: signature, LeafIndex: index})
	if err != nil {
		return err
	}
	if published {
		certificatesIssued.Inc()
		s.options.Waits.Notify(c.DealID)
	}
	crash.Point("escrow.published")
	return nil
}

func (s *Service) sign(ctx context.Context, c *store.Certificate) (string, checked, error) {
	if !s.hasOwnMAC(c.CertID, c.Payload, c.MAC) {
		return "", checked{}, fmt.Errorf("foreign certificate: %s is not signed, because its MAC matches no server secret of this process: run `fairpactctl secret check` and add the missing secret; if no secret is missing, find out who wrote the row", c.CertID)
	}
	entry := c.Entry()
	signature, err := s.signer.Sign(ctx, entry)
	if err != nil {
		return "", checked{}, fmt.Errorf("signing: %w", err)
	}
	crash.Point("escrow.signed")
	signed := *c
	signed.Signature = &signature
	facts, err := s.check(&signed, entry) // also caches, for the next read
	return signature, facts, err
}

// hasOwnMAC reports whether mac is the payload's MAC under a server secret of this process.
func (s *Service) hasOwnMAC(certID string, payload, mac []byte) bool {
	return slices.ContainsFunc(s.secrets.All(), func(one *sealing.Secret) bool { return hmac.Equal(mac, payloadMAC(one, certID, payload)) })
}

// contradictedFor is how long a process remembers a contradiction before it tries again.
const contradictedFor = time.Hour

// contradiction is the log's refusal of a certificate, because it has another one of the deal.
type contradiction struct {
	certID string
	err    error
}

// Adopt stores a deal's certificate from a copy that a party kept, and ends the deal as it states. The
// caller MUST have verified the copy's signature, and that the log has its entry at leafIndex under
// the deal's tag. Adopt does not restore commitments and reveals. The database must have the deal.
func Adopt(ctx context.Context, s *store.Store, secrets *sealing.Secrets, payload []byte, signature string, leafIndex int64) error {
	if err := secrets.Check(ctx, s); err != nil {
		return err
	}
	p, err := certificate.Parse(payload)
	if err != nil {
		return err
	}
	e := &store.Ending{
		DealID: p.DealID, To: deal.Void, RevealsClosedAt: p.Timing.RevealsClosedAt, ComputedAt: p.Timing.ComputedAt, VoidFlakers: p.VoidFlakers,
		CertID: &p.CertID, Payload: payload, MAC: payloadMAC(secrets.Writer(), p.CertID, payload),
	}
	if p.Outcome == certificate.Computed {
		e.To = deal.Computed
	}
	if !bytes.Equal(p.Result, []byte("null")) {
		e.Result = p.Result
	}
	done, err := s.Adopt(ctx, e, p.Timing.CommitsClosedAt, store.Publication{CertID: p.CertID, Signature: signature, LeafIndex: leafIndex})
	if err == nil && !done {
		err = fmt.Errorf("the database has no deal %s: restore its row from a backup; without one there is nothing to adopt, and the certificate stays valid", p.DealID)
	}
	return err
}
