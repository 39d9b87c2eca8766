package escrow

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/attestation"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// checked holds facts of a certificate's payload, and the key that signed the payload. For a
// tree head, only `key` is set.
type checked struct {
	certID, dealID    string
	outcome           string
	rootWellFormed    bool
	declarationDigest string // SHA-256 of the deal's declaration; "" in certificates of earlier releases
	key               keys.Key
}

// check parses the payload of a stored certificate and verifies the certificate's signature.
// It caches the facts of a valid certificate by payload and signature. If only the signature
// is invalid, check returns the payload's facts with an error.
func (s *Service) check(c *store.Certificate) (checked, error) {
	h := sha256.New()
	h.Write(c.Payload)
	h.Write([]byte{0})
	h.Write([]byte(*c.Signature))
	sum := hash(h.Sum(nil))
	if known, ok := s.verified.Get(sum); ok {
		return known, nil
	}
	payload, err := certificate.Parse(c.Payload)
	if err != nil {
		return checked{}, err
	}
	facts := checked{certID: payload.CertID, dealID: payload.DealID, outcome: payload.Outcome, rootWellFormed: payload.InputRootWellFormed()}
	if facts.declarationDigest, err = attestation.DigestIn(payload.Properties); err != nil {
		return checked{}, err
	}
	if facts.key, err = s.keys.SignerOf(c.Payload, *c.Signature); err != nil {
		return facts, fmt.Errorf("signature of the certificate: %w", err)
	}
	s.verified.Add(sum, facts, 256)
	return facts, nil
}

// intact returns the facts of a stored certificate. The error is LOG_INCONSISTENT if the
// certificate does not verify, belongs to another deal, or has a leaf at or above the
// TreeSize of the signing key (Key.MaySignLeaf).
func (s *Service) intact(c *store.Certificate, dealID string) (facts checked, err error) {
	if c.Signature == nil {
		err = fmt.Errorf("certificate %s has a leaf but no signature", c.CertID)
	} else if facts, err = s.check(c); err == nil {
		switch {
		case facts.certID != c.CertID || facts.dealID != dealID:
			err = fmt.Errorf("the row of certificate %s of deal %s contains certificate %s of deal %s", c.CertID, dealID, facts.certID, facts.dealID)
		case !facts.key.MaySignLeaf(*c.LeafIndex):
			err = fmt.Errorf("leaf %d is signed by the key %s, which retired at tree size %d", *c.LeafIndex, facts.key.Label, *facts.key.TreeSize)
		}
	}
	if err != nil {
		err = problem.New(problem.LogInconsistent, "the stored certificate does not verify; tell the operator of this deployment").WithCause(err)
	}
	return facts, err
}

// prove asks the log for an inclusion proof of the certificate's leaf. It verifies the proof
// and the signature of the proof's tree head. The error is LOG_INCONSISTENT or
// LOG_UNAVAILABLE (logTrouble).
func (s *Service) prove(ctx context.Context, c *store.Certificate) (certificate.LogProof, translog.TreeHead, error) {
	entry := certificate.Entry(c.Payload)
	in, err := s.log.Inclusion(ctx, entry, *c.LeafIndex)
	if err == nil {
		err = s.checkHead(in.TreeHead)
	}
	proof := certificate.LogProof{TreeSize: in.TreeSize, LeafIndex: *c.LeafIndex, InclusionPath: append([]string{}, in.Path...)}
	if err == nil {
		if wrong := certificate.VerifyInclusion(entry, proof, in.RootHash); wrong != nil {
			err = fmt.Errorf("%w: %w", translog.ErrInconsistent, wrong)
		}
	}
	if err != nil {
		return certificate.LogProof{}, translog.TreeHead{}, logTrouble(err)
	}
	return proof, in.TreeHead, nil
}

// checkHead verifies the signature of a tree head, and caches the result.
//
// An unknown key does not cause ErrInconsistent: during a key rotation, log-server may sign
// with a key that this process lacks. The error is ErrInconsistent if a key signed the head
// after the key had retired.
func (s *Service) checkHead(head translog.TreeHead) error {
	message := head.Message()
	sum := hash(sha256.Sum256(append(append([]byte("head\x00"), message...), head.Signature...)))
	known, ok := s.verified.Get(sum)
	if !ok {
		var err error
		if known.key, err = s.keys.SignerOf(message, head.Signature); err != nil {
			return fmt.Errorf("tree head of size %d: %w", head.TreeSize, err)
		}
		s.verified.Add(sum, known, 256)
	}
	if key := known.key; !key.MaySignLeaf(head.TreeSize - 1) {
		return fmt.Errorf("%w: the tree head of size %d is signed by the key %s, which retired at tree size %d: every verifier refuses this head", translog.ErrInconsistent, head.TreeSize, key.Label, *key.TreeSize)
	}
	return nil
}

// logTrouble returns LOG_INCONSISTENT if the log contradicts itself or the certificate,
// and LOG_UNAVAILABLE for any other error.
func logTrouble(err error) error {
	if errors.Is(err, translog.ErrInconsistent) || errors.Is(err, translog.ErrNotFound) {
		return problem.New(problem.LogInconsistent, "the transparency log does not prove this certificate; tell the operator of this deployment").WithCause(err)
	}
	return problem.New(problem.LogUnavailable, "the transparency log is out of reach and nothing was lost; call again in a few seconds").WithRetryAfter(2).WithCause(err)
}
