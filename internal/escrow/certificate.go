package escrow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
)

// Certificate gives the signed certificate with a proof against the newest
// published tree head. Everything but the proof is the same bytes on every read.
func (s *Service) Certificate(ctx context.Context, a Access) (idempotency.Response, error) {
	st, err := s.settle(ctx, a.deal)
	if err != nil {
		return idempotency.Response{}, err
	}
	d := s.standing(a.deal, st)
	switch {
	case st.CertID == nil && d.Ended():
		return idempotency.Response{}, problem.New(problem.NoCertificate, "the deal is %s: it has no certificate and never will; create a new deal", d.State())
	case st.CertID == nil:
		return idempotency.Response{}, problem.New(problem.CertNotReady, "the deal is %s; a certificate is issued when it ends: poll GET /v1/deals/%s", d.State(), a.deal.DealID)
	}
	c, err := s.store.Certificate(ctx, *st.CertID)
	if err != nil {
		return idempotency.Response{}, err
	}
	if c.LeafIndex == nil {
		if c, err = s.finish(ctx, c.CertID); err != nil {
			return idempotency.Response{}, err
		}
	}
	// The proof first: a key of the log that is unknown here is found out by it,
	// which makes the log out of reach and the certificate not a bad one.
	proof, err := s.prove(ctx, c)
	if err != nil {
		return idempotency.Response{}, err
	}
	payload, err := s.intact(c, a.deal.DealID)
	if err != nil {
		return idempotency.Response{}, err
	}
	return respond(200, certificate.Certificate{Payload: payload, LogProof: proof, Signature: *c.Signature})
}

// intact reads a stored certificate and refuses to hand out one that does not
// verify or is another deal's.
func (s *Service) intact(c *store.Certificate, dealID string) (certificate.Payload, error) {
	payload, err := certificate.Parse(c.Payload)
	switch {
	case err != nil:
	case payload.CertID != c.CertID || payload.DealID != dealID:
		err = fmt.Errorf("the row of certificate %s holds %s of deal %s", c.CertID, payload.CertID, payload.DealID)
	case c.Signature == nil:
		err = fmt.Errorf("certificate %s has a leaf and no signature", c.CertID)
	default:
		var key signing.Key
		key, err = s.keys.SignerOf(c.Payload, *c.Signature)
		if err == nil && !key.MayHold(*c.LeafIndex) {
			err = fmt.Errorf("leaf %d is by %s, which retired at tree size %d", *c.LeafIndex, key.PublicKey, *key.TreeSize)
		}
	}
	if err != nil {
		return payload, problem.New(problem.LogInconsistent, "the stored certificate does not verify and is not handed out; tell the operator of this deployment").Because(err)
	}
	return payload, nil
}

// finish issues a pending certificate in the caller's own time, or says what
// it waits for.
func (s *Service) finish(ctx context.Context, certID string) (*store.Certificate, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), issueBound)
	defer cancel()
	cause := s.issue(bounded, certID)
	if cause != nil {
		s.logger.WarnContext(ctx, "certificate pending", "cert_id", certID, "error", cause.Error())
	}
	// What it waits for is read from where it stands: the cause may be only that
	// another process is at it, or that the bound ran out.
	c, err := s.store.Certificate(ctx, certID)
	if err != nil || c.LeafIndex != nil {
		return c, err
	}
	reason := "the transparency log is out of reach"
	switch {
	case errors.Is(cause, translog.ErrRefused), errors.Is(cause, translog.ErrInconsistent):
		reason = "the transparency log did not take it; the operator has to look"
	case c.Signature == nil:
		reason = "the signing key is out of reach"
	}
	p := problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: %s; call again in a few seconds", reason)
	p.RetryAfter = 2 * time.Second
	return nil, p
}

// prove gets a proof from the log and checks it, and the head it leads to,
// before anybody else sees it.
func (s *Service) prove(ctx context.Context, c *store.Certificate) (certificate.LogProof, error) {
	entry := certificate.Entry(c.Payload)
	in, err := s.log.Inclusion(ctx, entry, *c.LeafIndex)
	if err != nil {
		return certificate.LogProof{}, logTrouble(err)
	}
	proof := certificate.LogProof{TreeSize: in.TreeSize, LeafIndex: in.LeafIndex, InclusionPath: in.Path}
	if proof.InclusionPath == nil {
		proof.InclusionPath = []string{}
	}
	// The log has verified its head under its own keys. One that is foreign here
	// says that the two are configured apart (a rotation half done), which is no
	// verdict on a certificate.
	key, err := s.keys.SignerOf(in.TreeHead.Message(), in.TreeHead.Signature)
	if err != nil {
		return proof, logTrouble(fmt.Errorf("tree head of size %d: %w", in.TreeHead.TreeSize, err))
	}
	if !key.MayHold(in.TreeHead.TreeSize - 1) {
		return proof, logTrouble(fmt.Errorf("%w: its tree head of size %d is by %s, which retired at tree size %d: every verifier refuses it", translog.ErrInconsistent, in.TreeHead.TreeSize, key.PublicKey, *key.TreeSize))
	}
	if err := checkProof(entry, *c.LeafIndex, proof, in.TreeHead); err != nil {
		return proof, logTrouble(fmt.Errorf("%w: %w", translog.ErrInconsistent, err))
	}
	return proof, nil
}

func checkProof(entry [32]byte, index int64, proof certificate.LogProof, head translog.TreeHead) error {
	if proof.LeafIndex != index {
		return fmt.Errorf("the log proved leaf %d and not %d", proof.LeafIndex, index)
	}
	return certificate.VerifyInclusion(entry, proof, head.RootHash)
}

// report is a verification (SPEC 2.9).
type report struct {
	CertID  string `json:"cert_id"`
	Valid   bool   `json:"valid"`
	Outcome string `json:"outcome"`
	Checks  checks `json:"checks"`
	Note    string `json:"note"`
}

type checks struct {
	Signature bool `json:"signature"`
	InputRoot bool `json:"input_root_wellformed"`
	Inclusion bool `json:"merkle_inclusion"`
}

var errNoCertificate = problem.New(problem.CertNotFound, "no published certificate has this id; use certificate_id of GET /v1/deals/{id}")

// Verify recomputes every check from the stored certificate and the log's
// leaves and nodes. With the log or the database out of reach it is a 503 and
// never valid:false, which is a verdict.
func (s *Service) Verify(ctx context.Context, certID string) (idempotency.Response, error) {
	if !sealing.ValidID(certPrefix, certID) {
		return idempotency.Response{}, errNoCertificate
	}
	c, err := s.store.Certificate(ctx, certID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (c.LeafIndex == nil || c.Signature == nil) {
		return idempotency.Response{}, errNoCertificate
	}
	if err != nil {
		return idempotency.Response{}, err
	}
	r := report{CertID: certID, Note: "the signature, the form of input_root and the log inclusion were checked against what is stored now; check it yourself with the key of GET /v1/status"}
	payload, err := certificate.Parse(c.Payload)
	readable := err == nil && payload.CertID == certID
	r.Outcome = payload.Outcome
	if r.Outcome != certificate.Computed && r.Outcome != certificate.Void {
		readable, r.Outcome = false, certificate.Void
	}
	key, err := s.keys.SignerOf(c.Payload, *c.Signature)
	r.Checks.Signature = readable && err == nil
	r.Checks.InputRoot = readable && payload.InputRootWellFormed()
	switch _, err := s.prove(ctx, c); {
	case err == nil:
		r.Checks.Inclusion = true
	case problem.Is(err, problem.LogInconsistent):
		s.logger.ErrorContext(ctx, "certificate is not in the log", "cert_id", certID, "error", errors.Unwrap(err).Error())
	default:
		return idempotency.Response{}, err
	}
	r.Valid = r.Checks.Signature && r.Checks.InputRoot && r.Checks.Inclusion
	if !r.Valid {
		r.Note = "at least one check failed: do not rely on this certificate, and tell the operator of this deployment"
	}
	// The three checks are worded by SPEC 2.9, and what a retired key signed after
	// its time passes them; whoever stole it could have made such a one.
	if r.Checks.Signature && !key.MayHold(*c.LeafIndex) {
		r.Valid = false
		r.Note = fmt.Sprintf("the key %s retired when the log had %d leaves and signed nothing from leaf %d on, and this certificate is leaf %d: do not rely on it, and tell the operator of this deployment", key.PublicKey, *key.TreeSize, *key.TreeSize, *c.LeafIndex)
	}
	return respond(200, r)
}

// logTrouble tells a log that is out of reach from one that contradicts itself
// or this certificate.
func logTrouble(err error) error {
	if errors.Is(err, translog.ErrInconsistent) || errors.Is(err, translog.ErrNotFound) {
		return problem.New(problem.LogInconsistent, "the transparency log does not prove this certificate; tell the operator of this deployment").Because(err)
	}
	p := problem.New(problem.LogUnavailable, "the transparency log is out of reach and nothing was lost; call again in a few seconds").Because(err)
	p.RetryAfter = 2 * time.Second
	return p
}
