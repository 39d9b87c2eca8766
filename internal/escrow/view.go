package escrow

import (
	"context"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// View is a deal as its parties see it (SPEC 2.4). It has no place for inputs.
type View struct {
	*Deal
	*store.Snapshot            // of everyone
	State           deal.State // that shows
	CertificateID   *string    // nil until the certificate is published
}

// View returns the deal as it stands, after what is due was done.
func (s *Service) View(ctx context.Context, a Access) (View, error) {
	now, ok := s.ended.Get(a.deal.DealID)
	if !ok {
		var err error
		if now, err = s.advance(ctx, a.deal, a.deal.everyone()); err != nil {
			return View{}, err
		}
		if now.LeafIndex != nil {
			s.ended.Add(a.deal.DealID, now, 512+len(now.Result)+160*len(now.Parts))
		}
	}
	s.learnCertified(ctx, now)
	return View{a.deal, now, s.rules(a.deal, now).State(), published(now)}, a.deal.turn(ctx)
}

// published is the certificate's id once it is in the log.
func published(now *store.Snapshot) *string {
	if now.Published {
		return now.CertID
	}
	return nil
}

// OpenInput is one party's input as it was revealed.
type OpenInput struct {
	Input []byte // RFC 8785
	Salt  string
}

// Inputs returns the revealed inputs of an open deal, in party order, to its
// parties once it is COMPUTED. A sealed or purged deal never gives them out.
func (s *Service) Inputs(ctx context.Context, a Access) ([]OpenInput, error) {
	now, err := s.advance(ctx, a.deal, store.Nobody)
	if err != nil {
		return nil, err
	}
	switch d := s.rules(a.deal, now); {
	case a.deal.Mode != "open" || a.deal.Retention == "purge":
		return nil, problem.New(problem.InputsSealed, "mode %s with retention %s never gives inputs out; only mode open with retention standard does", a.deal.Mode, a.deal.Retention)
	case d.State() != deal.Computed && d.State() != deal.Certified:
		return nil, problem.New(problem.InputsNotReady, "the deal is %s; inputs are given out once it is COMPUTED", d.State())
	}
	if now, err = s.store.Snapshot(ctx, a.deal.DealID, store.WithInputs); err != nil {
		return nil, err
	}
	inputs, err := s.inputs(a.deal, now, nil, 0)
	if err != nil {
		return nil, err
	}
	all := make([]OpenInput, len(inputs))
	for i, in := range inputs {
		all[i] = OpenInput{in.Canonical, in.Salt}
	}
	return all, nil
}
