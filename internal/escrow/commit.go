package escrow

import (
	"context"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Committed is the answer to Service.Commit.
type Committed struct {
	DealID    string     `json:"deal_id"`
	State     deal.State `json:"state"`
	Party     int        `json:"party"`
	Committed bool       `json:"committed"` // always true
}

// Commit stores a party's commitment (SPEC 4), which a declared seat key MUST have signed.
func (s *Service) Commit(ctx context.Context, a Access, c Commitment, rec *Record) (Committed, error) {
	attestedBy, err := s.attest(a, c)
	if err != nil {
		return Committed{}, s.lateFirst(ctx, a, deal.Deal.Commit, err)
	}
	act := store.Act{DealID: a.deal.DealID, Party: a.party, Commitment: c.Hash, AttestedBy: attestedBy, Replay: rec.Replay()}
	var stored store.ActResult
	err = s.attempt(ctx, a, deal.Deal.Commit, func() (bool, error) {
		act.First = int(a.deal.firstUncommitted.Load())
		stored, err = s.store.Commit(ctx, act)
		return stored.Done, err
	})
	if err != nil {
		return Committed{}, err
	}
	crash.Point("escrow.committed")
	s.options.Waits.Notify(a.deal.DealID)
	s.commitments.Add(seat{a.deal.DealID, a.party}, c.Hash, len(a.deal.DealID))
	if stored.All {
		return Committed{a.deal.DealID, deal.Revealing, a.party, true}, nil
	}
	raise(&a.deal.firstUncommitted, stored.Missing)
	return Committed{a.deal.DealID, deal.Committing, a.party, true}, nil
}

// StoredCommit answers a repeated commit whose first call stored the commitment but no answer. It
// shows the deal's present state.
func (s *Service) StoredCommit(ctx context.Context, a Access) (Committed, error) {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return Committed{}, err
	}
	return Committed{a.deal.DealID, s.rules(a.deal, now).State(), a.party, true}, nil
}

// Cancelled is the answer to Service.Cancel.
type Cancelled struct {
	DealID string     `json:"deal_id"`
	State  deal.State `json:"state"`
}

// Cancel ends an active deal if no counterparty has committed (SPEC 3), or returns CANNOT_CANCEL.
func (s *Service) Cancel(ctx context.Context, a Access, rec *Record) (Cancelled, error) {
	answer := a.StoredCancel()
	replay, err := rec.ReplayWith(answer)
	if err != nil {
		return Cancelled{}, err
	}
	rule := func(d deal.Deal, p deal.Party, _ int64) *problem.Error { return d.Cancel(p.Committed) }
	a.party = 0 // the initiator's party index: the rule needs to know whether the initiator has committed
	err = s.attempt(ctx, a, rule, func() (bool, error) { return s.store.Cancel(ctx, a.deal.DealID, replay) })
	if err != nil {
		return Cancelled{}, err
	}
	s.noteEnd(ctx, &store.Ending{DealID: a.deal.DealID, To: deal.Cancelled})
	return answer, nil
}

// StoredCancel answers a cancel of the deal that is stored.
func (a Access) StoredCancel() Cancelled { return Cancelled{a.deal.DealID, deal.Cancelled} }
