package escrow

import (
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// Cancelled is a deal that its initiator has cancelled.
type Cancelled struct {
	DealID string     `json:"deal_id"`
	State  deal.State `json:"state"`
}

// Cancel ends a deal that no counterparty has committed to (SPEC 3).
func (s *Service) Cancel(ctx context.Context, a Access, rec *idempotency.Record) (Cancelled, error) {
	answer := a.Cancelled()
	replay, err := rec.ReplayWith(answer)
	if err != nil {
		return Cancelled{}, err
	}
	initiator := Access{a.deal, 0}
	for range attempts {
		done, err := s.store.Cancel(ctx, a.deal.DealID, replay)
		if err != nil {
			return Cancelled{}, err
		}
		if done {
			s.noteEnd(ctx, &store.Ending{DealID: a.deal.DealID, To: deal.Cancelled})
			return answer, nil
		}
		refused := s.refused(ctx, initiator, func(d deal.Deal, p deal.Party, _ int64) *problem.Error { return d.Cancel(p.Committed) })
		if refused != nil {
			return Cancelled{}, refused
		}
	}
	return Cancelled{}, fmt.Errorf("deal %s: still not cancelled after %d attempts", a.deal.DealID, attempts)
}

// Cancelled is the answer to a cancel that stands.
func (a Access) Cancelled() Cancelled { return Cancelled{a.deal.DealID, deal.Cancelled} }
