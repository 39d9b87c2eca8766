package escrow

import (
	"context"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/telemetry"
)

// Prefixes of the two kinds of identifier.
const (
	dealPrefix = "d_"
	certPrefix = "c_"
)

// declaration is a deal as it was created, ready for use.
type declaration struct {
	*store.Static
	algorithm *algorithm.Algorithm
	params    map[string]any
}

func (s *Service) declared(ctx context.Context, dealID string) (*declaration, error) {
	if !sealing.ValidID(dealPrefix, dealID) {
		return nil, store.ErrNotFound
	}
	telemetry.NoteDeal(ctx, dealID)
	for _, cache := range []*lru.Cache[string, *declaration]{s.small, s.large} {
		if d, ok := cache.Get(dealID); ok {
			return d, nil
		}
	}
	// The first calls on a deal of 10,000 parties read its labels once, together.
	loaded, err, _ := s.loads.Do(dealID, func() (any, error) {
		ctx, cancel := settled(ctx)
		defer cancel()
		return s.load(ctx, dealID)
	})
	if err != nil {
		return nil, err
	}
	return loaded.(*declaration), nil
}

func (s *Service) load(ctx context.Context, dealID string) (*declaration, error) {
	static, err := s.store.Static(ctx, dealID)
	if err != nil {
		return nil, err
	}
	d, err := newDeclaration(static)
	if err != nil {
		return nil, err
	}
	if d.size() <= smallSize {
		s.small.Add(dealID, d)
	} else {
		s.large.Add(dealID, d)
	}
	return d, nil
}

// size is about how many bytes a declaration holds.
func (d *declaration) size() int {
	n := 2 * len(d.Params) // as text and as tree
	for _, label := range d.Labels {
		n += len(label) + 16
	}
	return n
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
	return &declaration{static, alg, alg.Known(params)}, nil
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
