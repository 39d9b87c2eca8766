package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/serversecret"
	"github.com/fairpact/fairpact/internal/store"
)

// attempts of an act that the deal's state kept from being stored while nothing
// in that state refuses it: the deal moved on in between.
const attempts = 4

// advance takes the steps that are due, whoever is there to take them, and
// returns the deal as it then stands. A certificate that this brings about is
// issued within a bound; where that fails the worker finishes it.
func (s *Service) advance(ctx context.Context, d *Deal, want store.Want) (*store.Snapshot, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	for range 8 {
		now, err := s.store.Snapshot(ctx, d.DealID, want)
		if err != nil {
			return nil, err
		}
		s.learnCertified(ctx, now)
		rules := s.rules(d, now)
		step := rules.Next(now.Now)
		switch {
		case step == deal.Advance, rules.Random && rules.AllRevealed() && now.RevealsClosedAt == nil:
			err = s.store.CatchUp(ctx, d.DealID)
		case step == deal.None || step == deal.Draw: // a draw waits for its caller or the worker
			return now, nil
		case step == deal.Expire:
			_, err = s.expire(ctx, d)
		default:
			var ended *store.Snapshot
			if ended, err = s.endDeal(ctx, d, step, nil, nil); err == nil && !want.More() {
				return ended, nil
			}
			if errors.Is(err, errUnopened) {
				rules.Unopened = true
				if rules.Next(now.Now) != deal.Expire {
					return now, nil // the secret may come back until the deadline
				}
				_, err = s.endUnopened(ctx, d)
			}
		}
		if err != nil && !errors.Is(err, errMoved) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("advance: deal %s does not come to rest", d.DealID)
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

// databaseAway reports whether err is no verdict, but a database that is out of reach
// or takes no changes.
func databaseAway(err error) bool {
	return problem.Is(err, problem.Unavailable) || problem.Is(err, problem.ReadOnly)
}

// expire ends a random.v1 deal whose round could not be fetched for the whole
// window, unless it can be fetched now: a deployment that was down is no reason.
func (s *Service) expire(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	drawn, err := s.pinnedRound(ctx, d)
	switch {
	case err == nil:
		ended, err := s.endDeal(ctx, d, deal.Draw, drawn, nil)
		if errors.Is(err, errUnopened) {
			return s.endUnopened(ctx, d)
		}
		return ended, err
	case databaseAway(err):
		return nil, err // nothing is known of the beacon
	}
	s.logger.WarnContext(ctx, "deal expires without its beacon round", "round", *d.BeaconRound, "err", err)
	return s.endDeal(ctx, d, deal.Expire, nil, nil)
}

// endUnopened ends a deal of which an input did not open until its deadline: nobody
// is at fault.
func (s *Service) endUnopened(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	if err := serversecret.Refresh(ctx, s.store, s.secrets); err != nil {
		return nil, err // another replica may have the secret that opens it
	}
	s.logger.ErrorContext(ctx, "deal expires with an input that does not open")
	return s.endDeal(ctx, d, deal.Expire, nil, nil)
}
