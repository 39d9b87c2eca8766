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

// advance takes the steps that are due and returns the deal after them. If a step creates a
// certificate, advance tries to issue it within issueBound, and the worker retries. A deal
// with a lost input is returned unchanged until its deadline.
func (s *Service) advance(ctx context.Context, a Access, want store.Want) (*store.Snapshot, error) {
	now, err := s.takeSteps(ctx, a.deal, want)
	if errors.Is(err, store.ErrNotFound) {
		return nil, s.lost(a)
	}
	if now != nil && errors.Is(err, errInputLost) {
		return now, nil
	}
	return now, err
}

// takeSteps does the same as advance, but returns a deal with a lost input together with
// errInputLost. Attend needs this error, so that the worker logs it and tries again.
func (s *Service) takeSteps(ctx context.Context, d *Deal, want store.Want) (*store.Snapshot, error) {
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
		var ended *store.Snapshot
		switch {
		case step == deal.Advance, rules.Random && rules.AllRevealed() && now.RevealsClosedAt == nil:
			err = s.store.CatchUp(ctx, d.DealID)
		case step == deal.None || step == deal.Draw: // a party or the worker draws, see Entropy and Attend
			return now, nil
		case step == deal.Expire:
			ended, err = s.drawOrExpire(ctx, d)
		default:
			ended, err = s.endDeal(ctx, d, step, nil)
		}
		if errors.Is(err, errInputLost) {
			rules.InputLost = true
			if rules.Next(now.Now) != deal.Expire {
				return now, err // an operator may add the missing secret before the deadline
			}
			ended, err = s.expireLost(ctx, d)
		}
		switch {
		case err == nil && ended != nil && !want.More():
			return ended, nil
		case err != nil && !errors.Is(err, errMoved):
			return nil, err
		}
	}
	return nil, fmt.Errorf("a step is still due after 8 tries: deal %s", d.DealID)
}

// drawOrExpire ends a random.v1 deal whose entropy window is over. It first tries the
// draw: if this deployment was down, a relay can have the round now. The deal expires only
// if no relay has the round. After any other error the deal is unchanged, and the next
// call tries again.
func (s *Service) drawOrExpire(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	drawn, err := s.endDeal(ctx, d, deal.Draw, nil)
	if !problem.Is(err, problem.BeaconUnavailable) && !problem.Is(err, problem.BeaconNotReady) {
		return drawn, err
	}
	s.logger.WarnContext(ctx, "deal expires without its beacon round", "round", *d.BeaconRound, "err", err)
	return s.endDeal(ctx, d, deal.Expire, nil)
}

// expireLost ends a deal at its deadline as EXPIRED, because one of its inputs cannot be
// decrypted and no party is at fault.
func (s *Service) expireLost(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	if err := serversecret.Refresh(ctx, s.store, s.secrets); err != nil {
		return nil, err // another replica may have the secret that decrypts the input
	}
	s.logger.ErrorContext(ctx, "deal expires with an input that does not open")
	return s.endDeal(ctx, d, deal.Expire, nil)
}
