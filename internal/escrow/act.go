package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// A rule returns the reason why a commit, a reveal or a cancel is refused, or nil. The store
// decides first, in the statement that stores the action. Only a refused action costs a read.
type rule func(d deal.Deal, p deal.Party, now int64) *problem.Error

// attempts is how often an action is tried, because the deal can change after a refusal.
const attempts = 4

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

// checkRule returns why the rule refuses the action now, or nil.
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

// lateFirst chooses the error for a request that failed with err: a late caller must learn that the
// call is late, even if the request is also invalid. It returns an internal error, UNAVAILABLE or
// READ_ONLY as it is.
func (s *Service) lateFirst(ctx context.Context, a Access, rule rule, err error) error {
	if _, verdict := errors.AsType[*problem.Error](err); !verdict || problem.Is(err, problem.Unavailable) || problem.Is(err, problem.ReadOnly) {
		return err
	}
	if late := s.checkRule(ctx, a, rule); late != nil {
		return late
	}
	return err
}
