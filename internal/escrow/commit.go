package escrow

import (
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/store"
)

// Committed is a commitment that stands.
type Committed struct {
	DealID    string     `json:"deal_id"`
	State     deal.State `json:"state"`
	Party     int        `json:"party"`
	Committed bool       `json:"committed"` // true
}

// Commit stores a party's commitment (SPEC 4). Where the party has a declared key,
// only one that this key has signed.
func (s *Service) Commit(ctx context.Context, a Access, c Commitment, rec *idempotency.Record) (Committed, error) {
	attestedBy, err := s.attest(a, c)
	if err != nil {
		return Committed{}, s.late(ctx, a, err)
	}
	act := store.Act{DealID: a.deal.DealID, Party: a.party, Commitment: c.Hash, AttestedBy: attestedBy, Replay: rec.Replay()}
	for range attempts {
		act.First = int(a.deal.committed.Load())
		done, err := s.store.Commit(ctx, act)
		if err != nil {
			return Committed{}, err
		}
		if done.Done {
			crash.Point("escrow.committed")
			s.options.Waits.Changed(a.deal.DealID)
			s.commitments.Add(seat{a.deal.DealID, a.party}, c.Hash, len(a.deal.DealID))
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
