package escrow

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/rules/attestation"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// Issued is a signed certificate with its proof of inclusion in the log.
type Issued struct {
	CertID    string
	Outcome   string
	Payload   []byte // the bytes that Signature covers, in RFC 8785 form
	Signature string
	Proof     certificate.LogProof
	Head      translog.TreeHead // the tree head against which Proof verifies

	declaration string // digest of the declaration, from the certificate; "" if the certificate has none
}

// Certificate returns a deal's certificate with a proof against the newest published tree
// head. Every read returns the same bytes, except for the proof. The errors include:
//   - CERT_NOT_READY: the certificate is not published yet;
//   - NO_CERTIFICATE: the deal has ended without a certificate;
//   - LOG_INCONSISTENT: the certificate or its proof does not verify, or the log has another
//     certificate of the deal;
//   - LOG_UNAVAILABLE: the log is out of reach.
func (s *Service) Certificate(ctx context.Context, a Access) (Issued, error) {
	if err := a.deal.acquireSlot(ctx); err != nil {
		return Issued{}, err
	}
	c, err := s.store.CertificateOf(ctx, a.deal.DealID)
	limits.ReleaseSlot(ctx)
	if errors.Is(err, store.ErrNotFound) {
		c, err = s.certificateAfterSteps(ctx, a)
	}
	if err == nil && c.LeafIndex == nil {
		c, err = s.issuePending(ctx, c)
	}
	if err != nil {
		return Issued{}, err
	}
	// Verify the proof before the certificate. During a key rotation this process may lack the
	// key that signed both the tree head and the certificate. The caller must then get
	// LOG_UNAVAILABLE, because the certificate is not known to be invalid.
	proof, head, err := s.prove(ctx, c)
	if err != nil {
		return Issued{}, err
	}
	if err := a.deal.acquireSlot(ctx); err != nil {
		return Issued{}, err
	}
	facts, err := s.intact(c, a.deal.DealID)
	if err != nil {
		return Issued{}, err
	}
	return Issued{c.CertID, facts.outcome, c.Payload, *c.Signature, proof, head, facts.declarationDigest}, nil
}

// errDrawable is the cause of CERT_NOT_READY between the beacon round's time and the worker's
// draw. In this time a caller can draw without waiting for deadline-worker.
var errDrawable = errors.New("the deal can be drawn")

// drawRetryAfter is the RetryAfter of CERT_NOT_READY, in seconds, if the worker's draw is overdue
// or the service is read-only.
const drawRetryAfter = 15

// certificateAfterSteps takes the steps that are due and returns the certificate that they
// create, or the reason why there is none.
func (s *Service) certificateAfterSteps(ctx context.Context, a Access) (*store.Certificate, error) {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return nil, err
	}
	rules := s.rules(a.deal, now)
	switch {
	case now.CertID != nil:
		return s.store.CertificateOf(ctx, a.deal.DealID)
	case rules.Ended():
		return nil, problem.New(problem.NoCertificate, "the deal is %s and never gets a certificate; create a new deal with %s", rules.State(), problem.Call{Op: problem.CreateDeal})
	case rules.Random && rules.AllRevealed() && now.Now >= rules.RoundTime:
		const published = "all have revealed and the beacon round is published"
		if left := rules.DrawAt() - now.Now; left > 0 && !s.options.ReadOnly {
			return nil, problem.New(problem.CertNotReady, published+"; the service draws in %d s: to have the result now, draw with %s", left, a.call(problem.Draw)).WithRetryAfter(left).WithCause(errDrawable)
		}
		// The exact time is unknown: deadline-worker draws as soon as a drand relay serves the round.
		return nil, problem.New(problem.CertNotReady, published+"; draw with %s", a.call(problem.Draw)).WithRetryAfter(drawRetryAfter)
	case rules.Random && rules.AllRevealed():
		return nil, problem.New(problem.CertNotReady, "all have revealed, and the beacon round is due at %d (now %d); then draw with %s", rules.RoundTime, now.Now, a.call(problem.Draw)).
			WithRetryAfter(min(rules.RoundTime-now.Now, 86_400))
	}
	return nil, problem.New(problem.CertNotReady, "the deal is %s; its certificate is issued when the deal ends: call again with a wait of at most 45 s, or call %s until the deal has ended", rules.State(), a.call(problem.ReadDeal))
}

// issuePending issues a pending certificate within the caller's request. If that fails, it
// returns the reason as CERT_NOT_READY, or LOG_INCONSISTENT if the log has another
// certificate of the deal.
func (s *Service) issuePending(ctx context.Context, c *store.Certificate) (*store.Certificate, error) {
	if s.options.ReadOnly { // a signature could not be stored, so none is made
		return nil, problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: the service accepts no changes during maintenance; call again later").WithRetryAfter(10)
	}
	cause := s.tryIssue(ctx, c)
	// Read the row again: another process may have issued the certificate.
	c, err := s.store.Certificate(ctx, c.CertID)
	if err != nil || c.LeafIndex != nil {
		return c, err
	}
	if errors.Is(cause, translog.ErrTagTaken) {
		return nil, problem.New(problem.LogInconsistent, "the log has another certificate of this deal, and this service has lost that certificate: if you have a copy, send it to the operator of this deployment").WithCause(cause)
	}
	reason := "the transparency log is out of reach"
	switch {
	case errors.Is(cause, translog.ErrRefused), errors.Is(cause, translog.ErrInconsistent):
		reason = "the transparency log refused the certificate, and the operator of the log must find out why"
	case c.Signature == nil:
		reason = "the certificate is not signed yet"
	}
	return nil, problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: %s; call again in a few seconds", reason).WithRetryAfter(2)
}

// checked holds facts of a certificate's payload, and the key that signed the payload. For a
// tree head, only `key` is set.
type checked struct {
	certID, dealID    string
	outcome           string
	rootWellFormed    bool
	declarationDigest string // SHA-256 of the deal's declaration; "" in certificates of earlier releases
	key               signing.Key
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
			err = fmt.Errorf("leaf %d is signed by the key %s, which retired at tree size %d", *c.LeafIndex, facts.key.PublicKey, *facts.key.TreeSize)
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
		return fmt.Errorf("%w: the tree head of size %d is signed by the key %s, which retired at tree size %d: every verifier refuses this head", translog.ErrInconsistent, head.TreeSize, key.PublicKey, *key.TreeSize)
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
