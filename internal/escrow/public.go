package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// publicFor is how long a process repeats what an audience has read, so that many readers cost as much as one.
const publicFor = time.Second

// shown is an answer to Public.
type shown struct {
	body []byte
	at   time.Time
}

// anybody is the principal of a reader without a credential. It is no party, and owns no deal.
var anybody = Principal{keyHash: []byte{}}

// Public returns, rendered, a deal that declares an audience (deal.AudiencePublic), with its bundle once there is one. It holds no
// input but the nonces of a draw. A deal that is not public is refused with the words for an unknown one: DEAL_NOT_FOUND.
func (s *Service) Public(ctx context.Context, dealID string, render func(View, *Bundle) ([]byte, error)) ([]byte, error) {
	s.sameServer(ctx)
	if kept, ok := s.public.Get(dealID); ok && time.Since(kept.at) < publicFor {
		return kept.body, holdAnswer(ctx, kept.body)
	}
	if err := s.isPublic(ctx, dealID); err != nil {
		return nil, err
	}
	budget.From(ctx).Shrink(0) // while another caller makes the answer
	body, err := once(ctx, &s.loads, "public "+dealID, func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		view, bundle, err := s.audience(ctx, dealID)
		if err != nil {
			return nil, err
		}
		body, err := render(view, bundle)
		if err == nil {
			s.public.Add(dealID, shown{body, time.Now()}, len(body))
		}
		return body, err
	})
	if err != nil {
		return nil, err
	}
	return body.([]byte), holdAnswer(ctx, body.([]byte))
}

// holdAnswer takes a ticket for the answer and its copy at once: a ticket that grows later may be refused.
func holdAnswer(ctx context.Context, body []byte) error {
	return budget.From(ctx).Hold(ctx, 2*int64(len(body)))
}

// IsPublic returns the error of Public, without making the answer.
func (s *Service) IsPublic(ctx context.Context, dealID string) error {
	s.sameServer(ctx)
	return s.isPublic(ctx, dealID)
}

func (s *Service) isPublic(ctx context.Context, dealID string) error {
	if _, known := s.deals.Get(dealID); !known {
		done, err := budget.From(ctx).One(ctx, budget.PublicDeal)
		if err != nil {
			return err
		}
		defer done()
	}
	d, err := s.dealOf(ctx, dealID)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.Audience == "" {
		return problem.New(problem.DealNotFound, "no public deal has this id: the parties of a private deal read it with %s", problem.Call{Op: problem.ReadDeal})
	}
	return err
}

// audience reads what an audience sees of a public deal. The bundle is nil until the certificate is published, and if the deal has none.
func (s *Service) audience(ctx context.Context, dealID string) (View, *Bundle, error) {
	d, err := s.dealOf(ctx, dealID)
	if err != nil {
		return View{}, nil, err
	}
	if err := hold(ctx, d.ViewBytes()+d.BundleBytes()); err != nil {
		return View{}, nil, err
	}
	a := Access{deal: d, party: -1, by: anybody, action: Read}
	view, err := s.View(ctx, a)
	if err != nil || view.CertificateID == nil {
		return view, nil, err
	}
	bundle, err := s.Bundle(ctx, a, false)
	return view, &bundle, err
}
