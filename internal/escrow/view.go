package escrow

import (
	"context"
	"encoding/json"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// View is a deal as its parties see it (SPEC 2.4). It contains no inputs.
type View struct {
	*Deal
	*store.Snapshot            // Parts has one element for each party
	State           deal.State // Snapshot.Phase, or OPEN or CERTIFIED, which are not stored
	CertificateID   *string    // nil until the certificate is published
}

// View takes the steps that are due, and returns the deal.
func (s *Service) View(ctx context.Context, a Access) (View, error) {
	now, ok := s.ended.Get(a.deal.DealID)
	if !ok {
		var err error
		if now, err = s.advance(ctx, a, store.AllParties(len(a.deal.Labels))); err != nil {
			return View{}, err
		}
		if now.LeafIndex != nil {
			s.ended.Add(a.deal.DealID, now, 512+len(now.Result)+160*len(now.Parts))
		}
	}
	s.learnCertified(ctx, now)
	return View{a.deal, now, s.rules(a.deal, now).State(), publishedID(now)}, a.deal.acquireSlot(ctx)
}

func publishedID(now *store.Snapshot) *string {
	if now.Published {
		return now.CertID
	}
	return nil
}

// OpenInput is a party's revealed input in a deal of mode open.
type OpenInput struct {
	Party int             `json:"party"`
	Input json.RawMessage `json:"input"` // canonical JSON (RFC 8785)
	Salt  string          `json:"salt"`
}

// OpenInputs holds all revealed inputs of a deal of mode open.
type OpenInputs struct {
	DealID string      `json:"deal_id"`
	Inputs []OpenInput `json:"inputs"` // in party order
}

// Inputs returns the revealed inputs of a COMPUTED or CERTIFIED deal of mode open and retention
// standard, else INPUTS_NOT_READY or INPUTS_SEALED.
func (s *Service) Inputs(ctx context.Context, a Access) (all OpenInputs, err error) {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return all, err
	}
	switch rules := s.rules(a.deal, now); {
	case a.deal.Mode != "open" || a.deal.Retention == "purge":
		return all, problem.New(problem.InputsSealed, "a deal of mode %s and retention %s never shows its inputs; only a deal of mode open and retention standard does", a.deal.Mode, a.deal.Retention)
	case rules.State() != deal.Computed && rules.State() != deal.Certified:
		return all, problem.New(problem.InputsNotReady, "the deal is %s; a deal shows its inputs only once it is COMPUTED", rules.State())
	}
	if now, err = s.store.Snapshot(ctx, a.deal.DealID, store.WithInputs); err != nil {
		return all, err
	}
	inputs, err := s.inputs(a.deal, now.Sealed)
	all.DealID = a.deal.DealID
	for i, in := range inputs {
		all.Inputs = append(all.Inputs, OpenInput{i, in.Canonical, in.Salt})
	}
	return all, err
}
