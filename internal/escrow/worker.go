package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
)

const listLimit = 1000 // of each kind in one listing; the next one brings more

// Due lists the deals that need the worker within the horizon, without those
// whose certificate the log refused for good.
func (s *Service) Due(ctx context.Context, horizon time.Duration) ([]store.Due, error) {
	return s.store.Due(ctx, int64(horizon/time.Second), listLimit, deal.DrawDelay, s.contradicted.deals())
}

// Complete lists deals in which nobody is missing and that a dead process did
// not move on. It looks at every active deal.
func (s *Service) Complete(ctx context.Context) ([]string, error) {
	return s.store.Complete(ctx, listLimit)
}

// Load is what runs and what waits, for the metrics.
func (s *Service) Load(ctx context.Context) (store.Load, error) {
	return s.store.Load(ctx, deal.DrawDelay)
}

// Sweep deletes the idempotency records whose time is over.
func (s *Service) Sweep(ctx context.Context) (int64, error) { return s.store.Sweep(ctx) }

// Attend does all that is due for a deal: its steps, its draw, its certificate.
// again is when the clock brings its next step (0: nothing more to come); an
// error means that something is out of reach: try again.
func (s *Service) Attend(ctx context.Context, dealID string) (again time.Duration, err error) {
	s.sameServer(ctx)
	d, err := s.dealOf(ctx, dealID)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now, err := s.advance(ctx, d, store.Nobody)
	if err == nil && s.rules(d, now).Next(now.Now) == deal.Compute { // advance could not, and said so to nobody
		if now, err = s.endDeal(ctx, d, deal.Compute, nil, nil); errors.Is(err, errMoved) {
			return 0, nil
		}
	}
	if err == nil && s.rules(d, now).Next(now.Now) == deal.Draw {
		if now, err = s.draw(ctx, d); errors.Is(err, errMoved) {
			now, err = s.advance(ctx, d, store.Nobody)
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
		if errors.Is(err, translog.ErrTagTaken) { // trying again does not help
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
