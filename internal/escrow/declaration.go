package escrow

import (
	"context"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// declaration is a deal as it was created, ready for use.
type declaration struct {
	*store.Static
	algorithm *algorithm.Algorithm
	params    map[string]any
}

func (s *Service) declared(ctx context.Context, dealID string) (*declaration, error) {
	if d, ok := s.statics.Get(dealID); ok {
		return d, nil
	}
	static, err := s.store.Static(ctx, dealID)
	if err != nil {
		return nil, err
	}
	d, err := newDeclaration(static)
	if err != nil {
		return nil, err
	}
	s.statics.Add(dealID, d)
	return d, nil
}

func newDeclaration(static *store.Static) (*declaration, error) {
	alg, ok := algorithm.Lookup(static.Algorithm)
	if !ok {
		return nil, fmt.Errorf("deal %s has the unknown algorithm %q", static.DealID, static.Algorithm)
	}
	params, err := canon.ParseObject(static.Params)
	if err != nil {
		return nil, fmt.Errorf("params of deal %s: %w", static.DealID, err)
	}
	return &declaration{static, alg, params}, nil
}

// standing puts a status under the rules of package deal.
func (s *Service) standing(d *declaration, st *store.Status) deal.Deal {
	v := deal.Deal{
		ID: d.DealID, Phase: st.Phase, Parties: len(d.Labels), Commits: st.Commits, Reveals: st.Reveals,
		CommitDeadline: d.CommitDeadline, RevealDeadline: d.RevealDeadline, LastReveal: st.LastReveal,
		EntropyWindow: int64(s.options.EntropyWindow / time.Second), VoidFlakers: st.VoidFlakers,
	}
	if d.RoundTime != nil {
		v.Random, v.RoundTime = true, *d.RoundTime
	}
	return v
}
