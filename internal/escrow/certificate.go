package escrow

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
)

// Issued is a signed certificate with its proof.
type Issued struct {
	CertID    string
	Outcome   string
	Payload   []byte // the signing bytes, RFC 8785
	Signature string
	Proof     certificate.LogProof
	Head      translog.TreeHead // that Proof leads to

	declaration string // the digest that the certificate names, "" where it names none
}

// Certificate returns a deal's certificate with a proof against the newest
// published tree head. Everything but the proof is the same bytes on every read.
func (s *Service) Certificate(ctx context.Context, a Access) (Issued, error) {
	if err := a.deal.turn(ctx); err != nil {
		return Issued{}, err
	}
	c, err := s.store.CertificateOf(ctx, a.deal.DealID)
	limits.Rest(ctx)
	if errors.Is(err, store.ErrNotFound) {
		c, err = s.certificateOfDue(ctx, a)
	}
	if err == nil && c.LeafIndex == nil {
		c, err = s.issuePending(ctx, c)
	}
	if err != nil {
		return Issued{}, err
	}
	// The proof first: where this process lacks a key of the log, the log counts
	// as out of reach and the certificate not as a bad one.
	proof, head, err := s.prove(ctx, c)
	if err != nil {
		return Issued{}, err
	}
	if err := a.deal.turn(ctx); err != nil {
		return Issued{}, err
	}
	facts, err := s.intact(c, a.deal.DealID)
	if err != nil {
		return Issued{}, err
	}
	return Issued{c.CertID, facts.outcome, c.Payload, *c.Signature, proof, head, facts.declaration}, nil
}

// certificateOfDue takes the deal's due steps and reads the certificate that
// they bring about, or says why there is none.
func (s *Service) certificateOfDue(ctx context.Context, a Access) (*store.Certificate, error) {
	now, err := s.advance(ctx, a.deal, store.Nobody)
	if err != nil {
		return nil, err
	}
	d := s.rules(a.deal, now)
	switch {
	case now.CertID != nil:
		return s.store.CertificateOf(ctx, a.deal.DealID)
	case d.Ended():
		return nil, problem.New(problem.NoCertificate, "the deal is %s: it has no certificate and never will; create a new deal with %s", d.State(), problem.Call{Op: problem.CreateDeal})
	case d.Random && d.AllRevealed() && now.Now >= d.RoundTime:
		return nil, problem.New(problem.CertNotReady, "all have revealed and the beacon round is out; draw with %s", a.call(problem.Draw))
	}
	return nil, problem.New(problem.CertNotReady, "the deal is %s; a certificate is issued when it ends: ask again with a wait (45 s at most), or follow %s", d.State(), a.call(problem.ReadDeal))
}

// issuePending issues a pending certificate in the caller's own time, or says what it
// waits for.
func (s *Service) issuePending(ctx context.Context, c *store.Certificate) (*store.Certificate, error) {
	if s.options.ReadOnly { // nothing would come of a signature
		return nil, problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: the service takes no changes now, for maintenance; call again later").After(10)
	}
	cause := s.tryIssue(ctx, c)
	// Read what it waits for from where it stands: somebody else may have issued it.
	c, err := s.store.Certificate(ctx, c.CertID)
	if err != nil || c.LeafIndex != nil {
		return c, err
	}
	if errors.Is(cause, translog.ErrTagTaken) {
		return nil, problem.New(problem.LogInconsistent, "the log has another certificate of this deal, and this service has lost it: give your copy of it, if you have one, to the operator of this deployment").Because(cause)
	}
	reason := "the transparency log is out of reach"
	switch {
	case errors.Is(cause, translog.ErrRefused), errors.Is(cause, translog.ErrInconsistent):
		reason = "the transparency log did not take it; the operator has to look"
	case c.Signature == nil:
		reason = "the signing key is out of reach"
	}
	return nil, problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: %s; call again in a few seconds", reason).After(2)
}

// checked is what verified bytes say. It holds for these bytes for ever.
type checked struct {
	certID, dealID string
	outcome        string
	rootWellFormed bool
	declaration    string      // the digest that it names; "": none
	key            signing.Key // of the signature over them
}

// check reads a stored certificate's signing bytes and verifies its signature,
// once for the same bytes. The payload's facts are valid where only the
// signature fails: the error is then errSignature.
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
	if facts.declaration, err = attestation.DigestIn(payload.Properties); err != nil {
		return checked{}, err
	}
	if facts.key, err = s.keys.SignerOf(c.Payload, *c.Signature); err != nil {
		return facts, fmt.Errorf("%w: %w", errSignature, err)
	}
	s.verified.Add(sum, facts, 256)
	return facts, nil
}

var errSignature = errors.New("the signature verifies under no key of the set")

// intact refuses to hand out a stored certificate that does not verify or is
// another deal's.
func (s *Service) intact(c *store.Certificate, dealID string) (facts checked, err error) {
	if c.Signature == nil {
		err = fmt.Errorf("certificate %s has a leaf and no signature", c.CertID)
	} else if facts, err = s.check(c); err == nil {
		switch {
		case facts.certID != c.CertID || facts.dealID != dealID:
			err = fmt.Errorf("the row of certificate %s holds %s of deal %s", c.CertID, facts.certID, facts.dealID)
		case !facts.key.MayHold(*c.LeafIndex):
			err = fmt.Errorf("leaf %d is by %s, which retired at tree size %d", *c.LeafIndex, facts.key.PublicKey, *facts.key.TreeSize)
		}
	}
	if err != nil {
		err = problem.New(problem.LogInconsistent, "the stored certificate does not verify and is not handed out; tell the operator of this deployment").Because(err)
	}
	return facts, err
}

// prove gets a proof from the log and checks it, and the head it leads to,
// before anybody else sees it.
func (s *Service) prove(ctx context.Context, c *store.Certificate) (proof certificate.LogProof, head translog.TreeHead, err error) {
	entry := certificate.Entry(c.Payload)
	in, err := s.log.Inclusion(ctx, entry, *c.LeafIndex)
	if err != nil {
		return proof, head, logTrouble(err)
	}
	proof = certificate.LogProof{TreeSize: in.TreeSize, LeafIndex: in.LeafIndex, InclusionPath: in.Path}
	if proof.InclusionPath == nil {
		proof.InclusionPath = []string{}
	}
	key, err := s.signerOfHead(in.TreeHead)
	// The log has verified its head under its own keys. One that is foreign here
	// says that the two are configured apart (a rotation half done), which is no
	// verdict on a certificate.
	if err != nil {
		return proof, head, logTrouble(fmt.Errorf("tree head of size %d: %w", in.TreeHead.TreeSize, err))
	}
	if !key.MayHold(in.TreeHead.TreeSize - 1) {
		return proof, head, logTrouble(fmt.Errorf("%w: its tree head of size %d is by %s, which retired at tree size %d: every verifier refuses it", translog.ErrInconsistent, in.TreeHead.TreeSize, key.PublicKey, *key.TreeSize))
	}
	if proof.LeafIndex != *c.LeafIndex {
		return proof, head, logTrouble(fmt.Errorf("%w: the log proved leaf %d and not %d", translog.ErrInconsistent, proof.LeafIndex, *c.LeafIndex))
	}
	if err := certificate.VerifyInclusion(entry, proof, in.TreeHead.RootHash); err != nil {
		return proof, head, logTrouble(fmt.Errorf("%w: %w", translog.ErrInconsistent, err))
	}
	return proof, in.TreeHead, nil
}

// signerOfHead verifies a tree head, once for the same bytes.
func (s *Service) signerOfHead(head translog.TreeHead) (signing.Key, error) {
	message := head.Message()
	sum := hash(sha256.Sum256(append(append([]byte("head\x00"), message...), head.Signature...)))
	if known, ok := s.verified.Get(sum); ok {
		return known.key, nil
	}
	key, err := s.keys.SignerOf(message, head.Signature)
	if err == nil {
		s.verified.Add(sum, checked{key: key}, 256)
	}
	return key, err
}

// logTrouble tells a log that is out of reach from one that contradicts itself
// or this certificate.
func logTrouble(err error) error {
	if errors.Is(err, translog.ErrInconsistent) || errors.Is(err, translog.ErrNotFound) {
		return problem.New(problem.LogInconsistent, "the transparency log does not prove this certificate; tell the operator of this deployment").Because(err)
	}
	return problem.New(problem.LogUnavailable, "the transparency log is out of reach and nothing was lost; call again in a few seconds").After(2).Because(err)
}
