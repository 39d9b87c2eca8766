package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Verification says whether a certificate is valid, and which checks it passed (SPEC 2.9).
type Verification struct {
	CertID  string `json:"cert_id"`
	Valid   bool   `json:"valid"`
	Outcome string `json:"outcome"`
	Checks  Checks `json:"checks"`
	Note    string `json:"note"`
}

// Checks says which checks of a certificate passed.
type Checks struct {
	Signature bool `json:"signature"`
	InputRoot bool `json:"input_root_wellformed"`
	Inclusion bool `json:"merkle_inclusion"`
}

var errNoCertificate = problem.New(problem.CertNotFound, "no published certificate has this id; use the certificate_id of %s", problem.Call{Op: problem.ReadDeal})

// Verify checks the stored certificate against the key set and the log's leaves and nodes.
// If no published certificate has the id certID, the error is CERT_NOT_FOUND. If the log or
// the database is out of reach, the result is an error and no report: a report would call a
// valid certificate invalid.
func (s *Service) Verify(ctx context.Context, certID string) (Verification, error) {
	c, err := s.published(ctx, certID)
	if errors.Is(err, store.ErrNotFound) {
		return Verification{}, errNoCertificate
	}
	if err == nil && len(c.Payload) >= large {
		err = limits.AcquireSlot(ctx)
	}
	if err != nil {
		return Verification{}, err
	}
	facts, err := s.check(c)
	ownPayload := facts.certID == certID
	v := Verification{
		CertID: certID, Outcome: facts.outcome, Checks: Checks{Signature: ownPayload && err == nil, InputRoot: ownPayload && facts.rootWellFormed},
		Note: "the stored certificate's signature, the form of its input_root and its inclusion in the log were checked now; check them yourself with the published keys",
	}
	if v.Outcome != certificate.Computed && v.Outcome != certificate.Void {
		v.Checks, v.Outcome = Checks{}, certificate.Void
	}
	switch _, _, err := s.prove(ctx, c); {
	case err == nil:
		v.Checks.Inclusion = true
	case problem.Is(err, problem.LogInconsistent):
		s.logger.ErrorContext(ctx, "the log does not prove the certificate", "cert_id", certID, "err", errors.Unwrap(err))
	default:
		return Verification{}, err
	}
	if v.Checks.Signature && s.options.Development(facts.key.Label) {
		v.Note += "; this deployment signs with a development key: its certificates prove nothing"
	}
	v.Valid = v.Checks.Signature && v.Checks.InputRoot && v.Checks.Inclusion
	if !v.Valid {
		v.Note = "at least one check failed: do not rely on this certificate, and tell the operator of this deployment"
	}
	// The three checks of SPEC 2.9 pass even if a key signed after its retirement. A thief
	// of the key could have made such a certificate, so it is not valid.
	if v.Checks.Signature && !facts.key.MaySignLeaf(*c.LeafIndex) {
		v.Valid = false
		v.Note = fmt.Sprintf("the key %s retired when the log had %d leaves, so it must not sign leaf %d or a later leaf. This certificate is leaf %d: do not rely on this certificate, and tell the operator of this deployment", facts.key.Label, *facts.key.TreeSize, *facts.key.TreeSize, *c.LeafIndex)
	}
	return v, nil
}

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
