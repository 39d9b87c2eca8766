package escrow

import (
	"context"
	"time"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/telemetry"
)

// Wait is how long a read may wait for a change of its deal, and since what. At
// most one of State and Same is set; without either it is since the call.
type Wait struct {
	For     time.Duration   // 0: do not wait
	Network string          // of the caller
	State   deal.State      // wait for another state, or for the certificate
	Same    func(View) bool // whether the caller has this view
}

// ViewAfter returns the deal as it stands once it has changed, and at the latest
// when the wait is over or the process drains. A deal that changes no more is
// returned at once.
func (s *Service) ViewAfter(ctx context.Context, a Access, w Wait) (View, error) {
	if _, ended := s.ended.Get(a.deal.DealID); w.For > 0 && !ended {
		if err := s.changed(ctx, a, w); err != nil {
			return View{}, err
		}
	}
	return s.View(ctx, a)
}

// changed waits until the deal is another than the caller has seen.
func (s *Service) changed(ctx context.Context, a Access, w Wait) error {
	call, err := s.options.Waits.Join(a.deal.DealID, w.Network)
	if err != nil {
		return err
	}
	defer call.Leave()
	timeUp := time.NewTimer(w.For)
	defer timeUp.Stop()
	seen, err := s.seen(ctx, a, w)
	if err != nil || seen == nil {
		return err
	}
	stateOnly := w.State != ""
	for now := *seen; now.Same(*seen, stateOnly) && !settled(now); {
		if !waits(ctx, func() bool { return call.Wait(ctx, now, stateOnly, timeUp.C) }) {
			return ctx.Err()
		}
		snapshot, err := s.advance(ctx, a.deal, store.Nobody)
		if err != nil {
			return err
		}
		now = snapshot.Mark()
	}
	return nil
}

// seen is the deal as the caller has seen it, or nil where it is another by now.
func (s *Service) seen(ctx context.Context, a Access, w Wait) (*store.Mark, error) {
	var now *store.Snapshot
	if w.Same != nil {
		view, err := s.View(ctx, a)
		if err != nil || !w.Same(view) {
			return nil, err
		}
		now = view.Snapshot
	} else {
		var err error
		if now, err = s.advance(ctx, a.deal, store.Nobody); err != nil {
			return nil, err
		}
	}
	mark := now.Mark()
	if w.State != "" && mark.State() != w.State {
		return nil, nil
	}
	return &mark, nil
}

// settled reports whether the deal changes no more.
func settled(now store.Mark) bool {
	return now.Published || now.Phase == deal.Expired || now.Phase == deal.Cancelled
}

// waits runs a wait. Meanwhile the call holds nothing that others need, and its
// time does not count as the service's.
func waits(ctx context.Context, wait func() bool) bool {
	limits.Wait(ctx)
	began := time.Now()
	defer func() { telemetry.NoteWait(ctx, time.Since(began)) }()
	return wait()
}

// CertificateAfter tries until the answer is another than CERT_NOT_READY, at the
// latest when the wait is over or the process drains. It tries again when the deal
// has changed its state or its certificate is published, and, where the deal waits
// for its draw, when the refusal says.
func (s *Service) CertificateAfter(ctx context.Context, a Access, w Wait, try func() (Issued, error)) (Issued, error) {
	issued, err := try()
	if w.For <= 0 || !problem.Is(err, problem.CertNotReady) {
		return issued, err
	}
	call, refused := s.options.Waits.Join(a.deal.DealID, w.Network)
	if refused != nil {
		return Issued{}, refused
	}
	defer call.Leave()
	timeUp := time.NewTimer(w.For)
	defer timeUp.Stop()
	asked := false
	for again := true; again && problem.Is(err, problem.CertNotReady); {
		snapshot, failed := s.advance(ctx, a.deal, store.Nobody)
		if failed != nil {
			return Issued{}, failed
		}
		now := snapshot.Mark()
		if again = !settled(now); again {
			retry, drawing := time.Duration(problem.From(err).RetryAfter)*time.Second, s.rules(a.deal, snapshot).AllRevealed()
			if retry > 0 && drawing {
				defer time.AfterFunc(retry, call.Wake).Stop()
			} else if drawing && !asked { // the last reveal came after the refusal
				asked = true
				issued, err = try()
				continue
			}
			again = waits(ctx, func() bool { return call.Wait(ctx, now, true, timeUp.C) })
		}
		issued, err = try()
	}
	return issued, err
}

// pendingLook is how many seconds a certificate that is not issued with its deal's
// end may take, where nothing is out of reach.
const pendingLook = 5

// LookAt is the unix time by which to look at the deal again, and false where
// nothing will change.
func (s *Service) LookAt(v View) (int64, bool) {
	if v.CertID != nil && !v.Published {
		return v.Now + pendingLook, true
	}
	return s.rules(v.Deal, v.Snapshot).LookAt(v.Now)
}
