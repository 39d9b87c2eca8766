package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/idempotency"
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

// Commit stores a party's commitment (SPEC 4). If the party has a declared seat key, the
// commitment MUST carry a signature by this key.
func (s *Service) Commit(ctx context.Context, a Access, c Commitment, rec *idempotency.Record) (Committed, error) {
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

// ReplayCommit returns the answer to a repeated commit call if the first call stored the
// commitment but no answer. The answer shows the deal's present state.
func (s *Service) ReplayCommit(ctx context.Context, a Access) (Committed, error) {
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

// Cancel ends an active deal if no counterparty has committed (SPEC 3). Otherwise the error
// is CANNOT_CANCEL.
func (s *Service) Cancel(ctx context.Context, a Access, rec *idempotency.Record) (Cancelled, error) {
	answer := a.ReplayCancel()
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

// ReplayCancel returns the answer to a repeated cancel call if the first call cancelled the
// deal.
func (a Access) ReplayCancel() Cancelled { return Cancelled{a.deal.DealID, deal.Cancelled} }

// A rule returns the reason why a party's action is refused, or nil. Each rule is a method of
// deal.Deal, or calls one.
type rule func(d deal.Deal, p deal.Party, now int64) *problem.Error

// attempts is how many times an action is tried. The store may refuse the action once and
// accept it later, because the deal can change in between.
const attempts = 4

// attempt calls `try` until the action is stored, `try` or the rule returns an error, or
// `attempts` calls have failed to store the action.
func (s *Service) attempt(ctx context.Context, a Access, rule rule, try func() (stored bool, err error)) error {
	for range attempts {
		stored, err := try()
		if stored || err != nil {
			return err
		}
		if err := s.checkRule(ctx, a, rule); err != nil {
			return err
		}
	}
	return fmt.Errorf("the store refused an action that the rules allow: deal %s, %d times in a row", a.deal.DealID, attempts)
}

// checkRule takes the deal's due steps (advance). It returns the reason why the rule refuses the
// action now, or nil if the action may be tried again.
func (s *Service) checkRule(ctx context.Context, a Access, rule rule) error {
	now, err := s.advance(ctx, a, store.OneParty(a.party))
	if err != nil {
		return err
	}
	if refusal := rule(s.rules(a.deal, now), partyStatus(now, a.party), now.Now); refusal != nil {
		return refusal
	}
	return nil
}

// lateFirst chooses the error for a request that failed with err. If the rule refuses the
// action too, lateFirst returns the rule's refusal: a late caller must learn that the call is
// late, even if the request is also invalid. Otherwise it returns err. If err is an
// internal error, UNAVAILABLE or READ_ONLY, lateFirst returns err without calling the rule.
func (s *Service) lateFirst(ctx context.Context, a Access, rule rule, err error) error {
	if _, verdict := errors.AsType[*problem.Error](err); !verdict || problem.Is(err, problem.Unavailable) || problem.Is(err, problem.ReadOnly) {
		return err
	}
	if late := s.checkRule(ctx, a, rule); late != nil {
		return late
	}
	return err
}
