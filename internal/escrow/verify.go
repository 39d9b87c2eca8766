package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Verification is a verification report (SPEC 2.9).
type Verification struct {
	CertID  string `json:"cert_id"`
	Valid   bool   `json:"valid"`
	Outcome string `json:"outcome"`
	Checks  Checks `json:"checks"`
	Note    string `json:"note"`
}

// Checks are the parts of a verification.
type Checks struct {
	Signature bool `json:"signature"`
	InputRoot bool `json:"input_root_wellformed"`
	Inclusion bool `json:"merkle_inclusion"`
}

var errNoCertificate = problem.New(problem.CertNotFound, "no published certificate has this id; use certificate_id of %s", problem.Call{Op: problem.ReadDeal})

// Verify recomputes every check from the stored certificate and the log's
// leaves and nodes. With the log or the database out of reach it fails and never
// says that a certificate is not valid, which is a verdict.
func (s *Service) Verify(ctx context.Context, certID string) (Verification, error) {
	c, err := s.published(ctx, certID)
	if errors.Is(err, store.ErrNotFound) {
		return Verification{}, errNoCertificate
	}
	if err == nil && len(c.Payload) >= large {
		err = limits.Turn(ctx)
	}
	if err != nil {
		return Verification{}, err
	}
	facts, err := s.check(c)
	readable := facts.certID == certID
	v := Verification{
		CertID: certID, Outcome: facts.outcome, Checks: Checks{Signature: readable && err == nil, InputRoot: readable && facts.rootWellFormed},
		Note: "the signature, the form of input_root and the log inclusion were checked against what is stored now; check it yourself with the published keys",
	}
	if v.Outcome != certificate.Computed && v.Outcome != certificate.Void {
		v.Checks, v.Outcome = Checks{}, certificate.Void
	}
	switch _, _, err := s.prove(ctx, c); {
	case err == nil:
		v.Checks.Inclusion = true
	case problem.Is(err, problem.LogInconsistent):
		s.logger.ErrorContext(ctx, "certificate is not in the log", "cert_id", certID, "err", errors.Unwrap(err))
	default:
		return Verification{}, err
	}
	v.Valid = v.Checks.Signature && v.Checks.InputRoot && v.Checks.Inclusion
	if !v.Valid {
		v.Note = "at least one check failed: do not rely on this certificate, and tell the operator of this deployment"
	}
	// The three checks are worded by SPEC 2.9, and what a retired key signed after
	// its time passes them; whoever stole it could have made such a one.
	if v.Checks.Signature && !facts.key.MayHold(*c.LeafIndex) {
		v.Valid = false
		v.Note = fmt.Sprintf("the key %s retired when the log had %d leaves and signed nothing from leaf %d on, and this certificate is leaf %d: do not rely on it, and tell the operator of this deployment", facts.key.PublicKey, *facts.key.TreeSize, *facts.key.TreeSize, *c.LeafIndex)
	}
	return v, nil
}

// published returns a certificate that has its leaf, or store.ErrNotFound.
func (s *Service) published(ctx context.Context, certID string) (*store.Certificate, error) {
	if !sealing.ValidID(certPrefix, certID) {
		return nil, store.ErrNotFound
	}
	c, err := s.store.Certificate(ctx, certID)
	if err == nil && (c.LeafIndex == nil || c.Signature == nil) {
		err = store.ErrNotFound
	}
	return c, err
}
