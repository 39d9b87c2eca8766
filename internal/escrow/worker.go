package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/translog"
)

// listLimit is the maximum number of deals that ListComplete returns, and that Due returns for each
// kind of work (see store.Store.Due).
const listLimit = 1000

// Due lists the deals that need the worker within the horizon. If the log has another
// certificate of a deal, the log refuses the deal's pending certificate. After such a refusal, Due
// leaves out the deal for an hour (contradictedFor).
func (s *Service) Due(ctx context.Context, horizon time.Duration) ([]store.Due, error) {
	return s.store.Due(ctx, int64(horizon/time.Second), listLimit, deal.DrawDelay, s.contradicted.Keys())
}

// ListComplete lists the deals in which every party has committed or revealed but the next step was
// not taken, usually because a process died. ListComplete reads every active deal.
func (s *Service) ListComplete(ctx context.Context) ([]string, error) {
	return s.store.ListComplete(ctx, listLimit)
}

// Load returns the counts and ages of active deals and pending certificates, for the metrics.
func (s *Service) Load(ctx context.Context) (store.Load, error) {
	return s.store.Load(ctx, deal.DrawDelay)
}

// Sweep deletes the idempotency records that have expired.
func (s *Service) Sweep(ctx context.Context) (int64, error) { return s.store.Sweep(ctx) }

// ProcessDeal does what is due for a deal: it takes the steps, makes the draw and issues the
// certificate. The result `again` is the time until the clock makes the next step due, at most an
// hour. It is 0 if no step waits for the clock. After an error the worker retries ProcessDeal.
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
