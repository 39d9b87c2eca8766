package escrow

import (
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// attempts of an act that the deal's state kept from being stored while nothing
// in that state refuses it: the deal moved on in between.
const attempts = 4

// Committed is a commitment that stands.
type Committed struct {
	DealID    string     `json:"deal_id"`
	State     deal.State `json:"state"`
	Party     int        `json:"party"`
	Committed bool       `json:"committed"` // true
}

// Commit stores a party's commitment (SPEC 4).
func (s *Service) Commit(ctx context.Context, a Access, commitment [32]byte, rec *idempotency.Record) (Committed, error) {
	act := store.Act{DealID: a.deal.DealID, Party: a.party, Commitment: commitment, Replay: rec.Replay()}
	for range attempts {
		act.First = int(a.deal.committed.Load())
		done, err := s.store.Commit(ctx, act)
		if err != nil {
			return Committed{}, err
		}
		if done.Done {
			crash.Point("escrow.committed")
			s.commitments.Add(seat{a.deal.DealID, a.party}, commitment, len(a.deal.DealID))
			if done.All {
				return a.committed(deal.Revealing), nil
			}
			raise(&a.deal.committed, done.Missing)
			return a.committed(deal.Committing), nil
		}
		// Kept out by the party's own commitment, the deadline or the phase.
		if err := s.refused(ctx, a, deal.Deal.Commit); err != nil {
			return Committed{}, err
		}
	}
	return Committed{}, fmt.Errorf("deal %s: commitment still not accepted after %d attempts", a.deal.DealID, attempts)
}

// Committed is the answer to a commitment that stands, from the deal as it
// stands now.
func (s *Service) Committed(ctx context.Context, a Access) (Committed, error) {
	now, err := s.advance(ctx, a.deal, store.Nobody)
	if err != nil {
		return Committed{}, err
	}
	return a.committed(s.rules(a.deal, now).State()), nil
}

func (a Access) committed(state deal.State) Committed {
	return Committed{a.deal.DealID, state, a.party, true}
}

// refused takes the steps that are due and returns the reason why the party
// cannot act, or nil where it should try again.
func (s *Service) refused(ctx context.Context, a Access, rule func(deal.Deal, deal.Party, int64) *problem.Error) error {
	now, err := s.advance(ctx, a.deal, store.Only(a.party))
	if err != nil {
		return err
	}
	if refusal := rule(s.rules(a.deal, now), part(now, a.party), now.Now); refusal != nil {
		return refusal
	}
	return nil
}

// commitmentOf returns a party's commitment, or store.ErrNotFound.
func (s *Service) commitmentOf(ctx context.Context, a Access) (commitment [32]byte, err error) {
	at := seat{a.deal.DealID, a.party}
	if commitment, ok := s.commitments.Get(at); ok {
		return commitment, nil
	}
	if commitment, err = s.store.Commitment(ctx, a.deal.DealID, a.party); err != nil {
		return commitment, err
	}
	s.commitments.Add(at, commitment, len(a.deal.DealID))
	return commitment, nil
}
