package escrow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/telemetry"
)

// Prefixes of the two kinds of identifier.
const (
	dealPrefix = "d_"
	certPrefix = "c_"
)

// Deal is a deal as it was declared, ready for use. It never changes.
type Deal struct {
	*store.Declaration
	algorithm *algorithm.Algorithm
	params    map[string]any
	cautions  cautions
	declared  struct { // what digest returns
		once   sync.Once
		digest string
		err    error
	}

	// The first parties that are not known to have committed or revealed: all
	// before them have, for ever. They only save work.
	committed, revealed atomic.Int64
}

// dealOf returns a deal's declaration, or store.ErrNotFound.
func (s *Service) dealOf(ctx context.Context, dealID string) (*Deal, error) {
	if !sealing.ValidID(dealPrefix, dealID) {
		return nil, store.ErrNotFound
	}
	telemetry.NoteDeal(ctx, dealID)
	if d, ok := s.deals.Get(dealID); ok {
		return d, nil
	}
	// The first calls on a deal of 10,000 parties read its labels once, together.
	loaded, err, _ := s.loads.Do(dealID, func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		declaration, err := s.store.Declaration(ctx, dealID)
		if err != nil {
			return nil, err
		}
		return s.keep(declaration)
	})
	if err != nil {
		return nil, err
	}
	return loaded.(*Deal), nil
}

// NewDeal makes a stored declaration ready for use.
func NewDeal(declaration *store.Declaration) (*Deal, error) {
	alg, ok := algorithm.Lookup(declaration.Algorithm)
	if !ok {
		return nil, fmt.Errorf("unknown algorithm: %q of deal %s", declaration.Algorithm, declaration.DealID)
	}
	params, err := canon.ParseObject(declaration.Params)
	if err != nil {
		return nil, fmt.Errorf("stored params: deal %s: %w", declaration.DealID, err)
	}
	return &Deal{Declaration: declaration, algorithm: alg, params: alg.Known(params)}, nil
}

// keep caches the deal of a declaration.
func (s *Service) keep(declaration *store.Declaration) (*Deal, error) {
	d, err := NewDeal(declaration)
	if err != nil {
		return nil, err
	}
	bytes := 512 + 3*len(d.Params) // as text and as tree
	for _, label := range d.Labels {
		bytes += len(label) + 16
	}
	bytes += 96 * len(d.SeatKeys)
	s.deals.Add(d.DealID, d, bytes)
	return d, nil
}

// rules is a deal as package deal judges it.
func (s *Service) rules(d *Deal, now *store.Snapshot) deal.Deal {
	phase := now.Phase
	if s.mayBeCertified(now) && *now.LeafIndex < s.log.Certified() {
		phase = deal.Certified
	}
	v := deal.Deal{
		ID: d.DealID, Phase: phase, Parties: len(d.Labels), Commits: now.Commits, Reveals: now.Reveals,
		CommitDeadline: d.CommitDeadline, RevealDeadline: d.RevealDeadline, LastReveal: now.LastReveal,
		EntropyWindow: int64(s.options.EntropyWindow / time.Second), VoidFlakers: now.VoidFlakers,
	}
	if d.RoundTime != nil {
		v.Random, v.RoundTime = true, *d.RoundTime
	}
	return v
}

// mayBeCertified reports whether the deal shows CERTIFIED once a quorum of
// witnesses has cosigned its leaf. COMPUTED is what is stored; nothing is written.
func (s *Service) mayBeCertified(now *store.Snapshot) bool {
	return now.Phase == deal.Computed && now.LeafIndex != nil
}

// learnCertified asks the log how far its witnesses are, where the deal shows
// CERTIFIED if they are far enough.
func (s *Service) learnCertified(ctx context.Context, now *store.Snapshot) {
	if s.mayBeCertified(now) && *now.LeafIndex >= s.log.Certified() {
		s.log.LearnCertified(ctx)
	}
}

// part is the part of the one party that a snapshot was asked for, as package
// deal judges it.
func part(now *store.Snapshot, party int) deal.Party {
	p := now.Parts[0]
	if len(now.Parts) > 1 { // of everyone
		p = now.Parts[party]
	}
	return deal.Party{Index: party, Committed: p.Commitment != nil, Revealed: p.Revealed}
}

// partBytes is about what a party's part takes in memory.
const partBytes = 128

// everyone wants the parts of all parties.
func (d *Deal) everyone() store.Want { return store.Everyone(len(d.Labels)) }

// large is the number of bytes from which a deal's answers are large work.
const large = 64 << 10

// turn waits for a turn to answer with all that was declared of a large deal.
func (d *Deal) turn(ctx context.Context) error {
	if len(d.Params)+partBytes*len(d.Labels) < large {
		return nil
	}
	return limits.Turn(ctx)
}

// raise moves a mark up, never down.
func raise(mark *atomic.Int64, to int) {
	for {
		at := mark.Load()
		if int64(to) <= at || mark.CompareAndSwap(at, int64(to)) {
			return
		}
	}
}
