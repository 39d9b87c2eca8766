package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/store"
)

const attempts = 4 // of an insert that a phase change keeps out

// Commit stores a party's commitment (SPEC 4).
func (s *Service) Commit(ctx context.Context, a Access, commitment [32]byte, rec *idempotency.Record) (idempotency.Response, error) {
	for range attempts {
		inserted, err := s.store.Commit(ctx, a.deal.DealID, a.party, commitment, rec.Replay())
		if err != nil {
			return idempotency.Response{}, err
		}
		if inserted {
			crash.Point("escrow.committed")
			return s.afterCommit(ctx, a)
		}
		// Kept out: by the party's own commitment, the deadline or the phase.
		if err := s.refused(ctx, a, deal.Deal.Commit); err != nil {
			return idempotency.Response{}, err
		}
	}
	return idempotency.Response{}, fmt.Errorf("deal %s does not take a commitment that it should", a.deal.DealID)
}

// afterCommit advances the deal where this was the last commitment.
func (s *Service) afterCommit(ctx context.Context, a Access) (idempotency.Response, error) {
	ctx, cancel := settled(ctx)
	defer cancel()
	missing, err := s.missing(ctx, a.deal, func(m *mark) *int { return &m.commits }, s.store.FirstMissingCommit)
	if err != nil {
		return idempotency.Response{}, err
	}
	if missing {
		return committed(a, deal.Committing)
	}
	return s.Committed(ctx, a)
}

// Committed is the answer to a commitment that stands, from the deal as it
// stands now.
func (s *Service) Committed(ctx context.Context, a Access) (idempotency.Response, error) {
	ctx, cancel := settled(ctx)
	defer cancel()
	st, err := s.settle(ctx, a.deal)
	if err != nil {
		return idempotency.Response{}, err
	}
	return committed(a, s.standing(a.deal, st).State())
}

func committed(a Access, state deal.State) (idempotency.Response, error) {
	next := fmt.Sprintf("the deal is %s: read it with GET /v1/deals/%s", state, a.deal.DealID)
	switch state {
	case deal.Committing:
		next = fmt.Sprintf("wait for the others: poll GET /v1/deals/%s until its state is REVEALING, then call POST /v1/deals/%s/reveal with your input and salt before %d", a.deal.DealID, a.deal.DealID, a.deal.RevealDeadline)
	case deal.Revealing:
		next = fmt.Sprintf("all have committed: call POST /v1/deals/%s/reveal with your input and salt before %d", a.deal.DealID, a.deal.RevealDeadline)
	}
	return respond(200, struct {
		DealID    string     `json:"deal_id"`
		State     deal.State `json:"state"`
		Party     int        `json:"party"`
		Committed bool       `json:"committed"`
		Next      string     `json:"next"`
	}{a.deal.DealID, state, a.party, true, next})
}

// missing asks whether anybody has yet to act, after the caller's own insert
// was committed: of two concurrent last ones at least one sees that none is
// left, and both may advance the deal. It starts at the party that was missing
// last time, so that n arrivals in order cost n looks and not n².
func (s *Service) missing(ctx context.Context, d *declaration, field func(*mark) *int, first func(context.Context, string, int) (int, bool, error)) (bool, error) {
	m, ok := s.marks.Get(d.DealID)
	if !ok {
		m = &mark{}
		if before, found, _ := s.marks.PeekOrAdd(d.DealID, m); found {
			m = before
		}
	}
	m.mu.Lock()
	from := *field(m)
	m.mu.Unlock()
	party, some, err := first(ctx, d.DealID, from)
	if err != nil || !some {
		return false, err
	}
	m.mu.Lock()
	*field(m) = max(*field(m), party)
	m.mu.Unlock()
	return true, nil
}

// refused settles the deal and gives the reason why the party cannot act, or
// nil where it should try again.
func (s *Service) refused(ctx context.Context, a Access, rule func(deal.Deal, deal.Party, int64) *deal.Refusal) error {
	st, err := s.settle(ctx, a.deal)
	if err != nil {
		return err
	}
	commitment, revealed, err := s.store.Party(ctx, a.deal.DealID, a.party)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	p := deal.Party{Index: a.party, Committed: commitment != nil, Revealed: revealed}
	return refusal(rule(s.standing(a.deal, st), p, st.Now))
}
