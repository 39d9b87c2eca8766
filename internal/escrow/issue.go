package escrow

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
)

// tryIssue issues a certificate within a request, in issueBound. What fails here
// the worker finishes.
func (s *Service) tryIssue(ctx context.Context, c *store.Certificate) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issueBound)
	defer cancel()
	err := s.issueCertificate(ctx, c)
	if err != nil {
		s.logger.WarnContext(ctx, "certificate pending", "cert_id", c.CertID, "err", err)
	}
	return err
}

// issueCertificate takes a pending certificate, as it was just read or written,
// to published:
//
//	stored unsigned -> signed -> entry in the log -> signature and leaf stored
//
// What a crash or an outage leaves, and who goes on:
//
//	cut after                 leaves                     the next one
//	the deal's end            no signature               signs
//	the signature             the same                   signs again: nobody has seen the first
//	an append that failed     the signature, stored      appends it, without a call to the KMS
//	the append                a leaf, no row names it    signs again and appends: the log finds
//	                                                     the digest and answers the same leaf
//
// The leaf is the digest, the same under any signature, so any number of
// processes may be at it: the first to store signature and leaf stands, and
// nobody is handed a certificate without a stored leaf. Calls of one process
// that want the same certificate issue it once.
//
// The log takes one certificate of a deal. Where it has another one, the deal's
// rows were changed or restored after it was issued: the error is
// translog.ErrTagTaken, and Adopt puts the one of the log back.
func (s *Service) issueCertificate(ctx context.Context, c *store.Certificate) error {
	_, err, _ := s.issues.Do(c.CertID, func() (any, error) {
		if err := s.contradicted.of(c.DealID, c.CertID); err != nil {
			return nil, err
		}
		err := s.issueOnce(ctx, c)
		if errors.Is(err, translog.ErrTagTaken) {
			s.contradicted.add(c.DealID, c.CertID, err)
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
	if c.Signature != nil {
		signature = *c.Signature
		facts, err = s.check(c)
	}
	if c.Signature == nil || err != nil { // none, or one that verifies under no key of the set
		if signature, facts, err = s.sign(ctx, c); err != nil {
			return err
		}
	}
	entry, tag := certificate.Entry(c.Payload), certificate.Tag(facts.dealID) // what was signed, whatever the row says
	index, err := s.log.Append(ctx, entry, signature, tag)
	// A key that was retired in between may hold no new leaf: sign with the current one.
	if err == nil && !facts.key.MayHold(index) || errors.Is(err, translog.ErrRefused) && facts.key.State != signing.StateCurrent {
		if signature, _, err = s.sign(ctx, c); err != nil {
			return err
		}
		index, err = s.log.Append(ctx, entry, signature, tag)
	}
	if err != nil {
		// The signature of a second certificate is dropped: it was shown to nobody.
		if !errors.Is(err, translog.ErrTagTaken) && (c.Signature == nil || *c.Signature != signature) {
			keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), issueBound)
			defer cancel()
			if kept := s.store.SetSignature(keeping, c.CertID, signature, c.Signature); kept != nil {
				s.logger.WarnContext(ctx, "signature not kept", "cert_id", c.CertID, "err", kept)
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
		s.options.Waits.Changed(c.DealID)
	}
	crash.Point("escrow.published")
	return nil
}

// made reports whether this service wrote a payload, under any of its secrets.
func (s *Service) made(certID string, payload, mac []byte) bool {
	return slices.ContainsFunc(s.secrets.All(), func(one *sealing.Secret) bool { return hmac.Equal(mac, payloadMAC(one, certID, payload)) })
}

// sign signs what this service decided, and returns the signature and what it says.
func (s *Service) sign(ctx context.Context, c *store.Certificate) (string, checked, error) {
	if !s.made(c.CertID, c.Payload, c.MAC) {
		return "", checked{}, fmt.Errorf("foreign certificate: %s was not written by this service, or under a lost server secret, and is never signed", c.CertID)
	}
	signature, err := s.signer.Sign(ctx, certificate.Entry(c.Payload))
	if err != nil {
		return "", checked{}, fmt.Errorf("signing: %w", err)
	}
	crash.Point("escrow.signed")
	signed := *c
	signed.Signature = &signature
	facts, err := s.check(&signed) // the next reader of the certificate finds it checked
	return signature, facts, err
}
