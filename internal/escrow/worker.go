package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/translog"
)

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
