package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

// Verification says whether a certificate is valid, and which checks it passed (SPEC 2.9).
type Verification struct {
	CertID  string `json:"cert_id"`
	Valid   bool   `json:"valid"`
	Outcome string `json:"outcome"`
	Checks  Checks `json:"checks"`
	Note    string `json:"note"`
}

// Checks says which checks passed.
type Checks struct {
	Signature bool `json:"signature"`
	InputRoot bool `json:"input_root_wellformed"`
	Inclusion bool `json:"merkle_inclusion"`
}

func checksOf(r verification.Report) Checks {
	return Checks{r.Holds(verification.Signature), r.Holds(verification.InputRootForm), r.Holds(verification.MerkleInclusion) && r.Holds(verification.TreeHeadSignature)}
}

// Verify checks the stored certificate against the key set and the log. If the log or the database is
// out of reach, the result is an error and no report.
func (s *Service) Verify(ctx context.Context, certID string) (Verification, error) {
	c, err := s.published(ctx, certID)
	if errors.Is(err, store.ErrNotFound) {
		return Verification{}, problem.New(problem.CertNotFound, "no published certificate has this id; use the certificate_id of %s", problem.Call{Op: problem.ReadDeal})
	}
	if err != nil {
		return Verification{}, err
	}
	i, err := s.inspect(ctx, c)
	if err != nil {
		return Verification{}, err
	}
	v := Verification{CertID: certID, Valid: i.Valid, Outcome: i.outcome, Checks: checksOf(i.Report)}
	if v.Outcome != certificate.Computed {
		v.Outcome = certificate.Void
	}
	if !v.Checks.Inclusion {
		s.logger.ErrorContext(ctx, "the log does not prove the certificate", "cert_id", certID, "err", errors.Unwrap(i.cause))
	}
	switch {
	case v.Checks.Signature && !i.key.MaySignLeaf(*c.LeafIndex):
		v.Note = fmt.Sprintf("the key %s retired when the log had %d leaves, so it must not sign leaf %d or a later leaf. This certificate is leaf %d: do not rely on this certificate, and tell the operator of this deployment", i.key.Label, *i.key.TreeSize, *i.key.TreeSize, *c.LeafIndex)
	case !v.Valid:
		v.Note = "at least one check failed: do not rely on this certificate, and tell the operator of this deployment"
	default:
		v.Note = "the stored certificate's signature, the form of its input_root and its inclusion in the log were checked now; check them yourself with the published keys"
		if s.options.Development(i.key.Label) {
			v.Note += "; this deployment signs with a development key: its certificates prove nothing"
		}
	}
	return v, nil
}

// published returns the certificate with this id, or ErrNotFound if it has no leaf yet.
func (s *Service) published(ctx context.Context, certID string) (*store.Certificate, error) {
	if !sealing.ValidID(certPrefix, certID) {
		return nil, store.ErrNotFound
	}
	c, err := s.store.Certificate(ctx, certID)
	if err == nil && (c.LeafIndex == nil || c.Signature == nil) {
		return nil, store.ErrNotFound
	}
	return c, err
}
