package escrow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// advance takes the due steps of a deal except Draw, and returns the resulting snapshot. If an input
// cannot be decrypted, it returns the deal unchanged until the deal expires.
func (s *Service) advance(ctx context.Context, a Access, selection store.Selection) (*store.Snapshot, error) {
	now, err := s.takeSteps(ctx, a.deal, selection)
	if errors.Is(err, store.ErrNotFound) {
		return nil, s.dealMissing(a)
	}
	if now != nil && errors.Is(err, errInputLost) {
		return now, nil
	}
	return now, err
}

// takeSteps is advance for deadline-worker, which logs and retries errInputLost.
func (s *Service) takeSteps(ctx context.Context, d *Deal, selection store.Selection) (*store.Snapshot, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	for range 8 {
		now, err := s.store.Snapshot(ctx, d.DealID, selection)
		if err != nil {
			return nil, err
		}
		s.learnCertified(ctx, now)
		rules := s.rules(d, now)
		step := rules.Next(now.Now)
		var ended *store.Snapshot
		switch {
		case step == deal.None || step == deal.Draw: // Entropy (for a caller) or ProcessDeal (for deadline-worker) draws
			return now, nil
		case step == deal.Expire:
			ended, err = s.drawOrExpire(ctx, d)
		default:
			ended, err = s.endDeal(ctx, d, step, nil)
		}
		if errors.Is(err, errInputLost) {
			rules.InputLost = true
			if rules.Next(now.Now) != deal.Expire {
				return now, err // until the deal expires, the operator may add the missing server secret
			}
			ended, err = s.expireLost(ctx, d)
		}
		switch {
		case err == nil && ended != nil && !selection.More():
			return ended, nil
		case err != nil && !errors.Is(err, errDealChanged):
			return nil, err
		}
	}
	return nil, fmt.Errorf("deal %s: a step is still due after 8 tries", d.DealID)
}

// drawOrExpire ends a random.v1 deal after its entropy window. It first tries the draw, because the
// round may have been published while this deployment was down. Only an unavailable round expires it.
func (s *Service) drawOrExpire(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	drawn, err := s.endDeal(ctx, d, deal.Draw, nil)
	if !problem.Is(err, problem.BeaconUnavailable) && !problem.Is(err, problem.BeaconNotReady) {
		return drawn, err
	}
	s.logger.WarnContext(ctx, "deal expires without its beacon round", "round", *d.BeaconRound, "err", err)
	return s.endDeal(ctx, d, deal.Expire, nil)
}

// expireLost ends a deal with an input that cannot be decrypted: no party is at fault, so not as VOID.
func (s *Service) expireLost(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	if err := s.secrets.Refresh(ctx, s.store); err != nil {
		return nil, err // the deal must not expire now: this process may lack the secret that decrypts the input
	}
	s.logger.ErrorContext(ctx, "deal expires because an input cannot be decrypted")
	return s.endDeal(ctx, d, deal.Expire, nil)
}

// Due lists the deals that need the worker within the horizon, at most `limit` of each kind (see
// store.Store.Due). It leaves out a deal of which the log has another certificate for an hour after
// the log's refusal (contradictedFor).
func (s *Service) Due(ctx context.Context, horizon time.Duration, limit int) ([]store.Due, error) {
	return s.store.Due(ctx, int64(horizon/time.Second), limit, s.contradicted.Keys())
}

// ProcessDeal does what is due for a deal: it takes the steps, draws and issues the certificate. `again`
// is the time until the clock makes the next step due, at most an hour, or 0. After an error the
// worker retries.
func (s *Service) ProcessDeal(ctx context.Context, dealID string) (again time.Duration, err error) {
	s.sameServer(ctx)
	d, err := s.dealOf(ctx, dealID)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now, err := s.takeSteps(ctx, d, store.NoParties)
	if err == nil && s.rules(d, now).Next(now.Now) == deal.Draw {
		if now, err = s.endDeal(ctx, d, deal.Draw, nil); errors.Is(err, errDealChanged) {
			now, err = s.takeSteps(ctx, d, store.NoParties)
		}
	}
	if err != nil {
		return 0, err
	}
	if now.CertID != nil && !now.Published {
		c, err := s.store.Certificate(ctx, *now.CertID)
		if err != nil || c.LeafIndex != nil {
			return 0, err
		}
		err = s.issueCertificate(ctx, c)
		if errors.Is(err, translog.ErrTagTaken) { // the log has another certificate of the deal, so a retry does not help
			return 0, nil
		}
		return 0, err
	}
	if at, ok := s.rules(d, now).DueAt(); ok {
		wait := min(at, now.Now+3600)*1000 - now.NowMilli
		return max(time.Duration(wait)*time.Millisecond, time.Millisecond), nil
	}
	return 0, nil
}
