package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Wait says how long a read may wait for a change of its deal, and which changes end the
// wait. At most one of State and Same is set. CertificateAfter uses neither.
type Wait struct {
	For     time.Duration // 0: do not wait
	Network string
	// State is the state that the caller knows, or "". If State is "", any change ends the wait.
	// Otherwise only a change of the deal's state, or of Drawing or Published in its
	// store.Progress, ends the wait.
	State deal.State
	Same  func(View) bool // reports whether the caller already has this view
}

// ViewAfter waits for a change of the deal and returns the deal. The wait also ends after w.For,
// or when the process drains. If the deal waits only for its beacon round, the wait also ends at
// the time of the round, because parties can make the draw from then on. If the deal is final,
// there is no wait.
func (s *Service) ViewAfter(ctx context.Context, a Access, w Wait) (View, error) {
	if _, final := s.ended.Get(a.deal.DealID); w.For > 0 && !final {
		if err := s.awaitChange(ctx, a, w); err != nil {
			return View{}, err
		}
	}
	return s.View(ctx, a)
}

func (s *Service) awaitChange(ctx context.Context, a Access, w Wait) error {
	waiter, err := s.options.Waits.Join(a.deal.DealID, w.Network)
	if err != nil {
		return err
	}
	defer waiter.Leave()
	snapshot, err := s.known(ctx, a, w)
	if err != nil || snapshot == nil {
		return err
	}
	timeUp := time.NewTimer(s.untilRound(a.deal, snapshot, w.For))
	defer timeUp.Stop()
	known, stateOnly := snapshot.Progress(), w.State != ""
	for now := known; now.Same(known, stateOnly) && !final(now); {
		if !pause(ctx, waiter, now, stateOnly, timeUp.C) {
			return ctx.Err()
		}
		if snapshot, err = s.advance(ctx, a, store.NoParties); err != nil {
			return err
		}
		now = snapshot.Progress()
	}
	return nil
}

// known returns the deal if the caller should wait for a change. It returns nil if the deal
// already differs from what the caller knows.
func (s *Service) known(ctx context.Context, a Access, w Wait) (*store.Snapshot, error) {
	if w.Same != nil {
		view, err := s.View(ctx, a)
		if err != nil || !w.Same(view) {
			return nil, err
		}
		return view.Snapshot, nil
	}
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil || w.State != "" && now.Progress().State() != w.State {
		return nil, err
	}
	return now, nil
}

// untilRound returns how long a wait may last. If the deal waits only for its beacon round, the
// wait ends at the time of the round. No wait lasts longer than `longest`.
func (s *Service) untilRound(d *Deal, now *store.Snapshot, longest time.Duration) time.Duration {
	if !d.Random() || !s.rules(d, now).AllRevealed() || *d.RoundTime <= now.Now || *d.RoundTime > now.Now+int64(waiting.Longest/time.Second) {
		return longest
	}
	return min(time.Duration(*d.RoundTime*1000-now.NowMilli)*time.Millisecond, longest)
}

// final reports whether the deal can no longer change, except from COMPUTED to CERTIFIED.
func final(now store.Progress) bool {
	return now.Published || now.Phase == deal.Expired || now.Phase == deal.Cancelled
}

// pause calls waiter.Wait and returns the result. First it releases the request's slot for large
// work and the memory of the request body. The metrics of latency do not count the wait.
func pause(ctx context.Context, waiter *waiting.Waiter, known store.Progress, stateOnly bool, timeUp <-chan time.Time) bool {
	limits.ReleaseForWait(ctx)
	began := time.Now()
	defer func() { telemetry.NoteWait(ctx, time.Since(began)) }()
	return waiter.Wait(ctx, known, stateOnly, timeUp)
}

// CertificateAfter returns the deal's certificate. If a try fails with CERT_NOT_READY, the
// function waits, at most w.For in total. It tries again at each change of the deal's state,
// and once more at the end of the wait. If the deal waits for its draw, the function also tries
// again after the error's RetryAfter.
//
// If prepare is not nil, each try first calls prepare, and fails with the error that prepare
// returns. If prepare is nil, the wait also ends once the caller can make the draw, because the
// worker makes the draw only later.
func (s *Service) CertificateAfter(ctx context.Context, a Access, w Wait, prepare func() error) (Issued, error) {
	if w.For <= 0 {
		return s.tryCertificate(ctx, a, prepare)
	}
	waiter, refused := s.options.Waits.Join(a.deal.DealID, w.Network)
	if refused != nil { // too many calls wait, but the certificate may be ready
		issued, err := s.tryCertificate(ctx, a, prepare)
		if problem.Is(err, problem.CertNotReady) {
			err = refused
		}
		return issued, err
	}
	defer waiter.Leave()
	timeUp := time.NewTimer(w.For)
	defer timeUp.Stop()
	for {
		// Read the deal before tryCertificate, so that a change during tryCertificate also ends the pause.
		now, err := s.advance(ctx, a, store.NoParties)
		if err != nil {
			return Issued{}, err
		}
		issued, err := s.tryCertificate(ctx, a, prepare)
		if !problem.Is(err, problem.CertNotReady) || prepare == nil && errors.Is(err, errDrawable) {
			return issued, err
		}
		if retry := problem.From(err).RetryAfter; retry > 0 && s.rules(a.deal, now).AllRevealed() {
			defer time.AfterFunc(time.Duration(retry)*time.Second, waiter.Wake).Stop()
		}
		if pause(ctx, waiter, now.Progress(), true, timeUp.C) {
			continue
		}
		if ctx.Err() != nil {
			return Issued{}, err
		}
		// Try once more: a change just before the end of the wait may not have woken the call.
		return s.tryCertificate(ctx, a, prepare)
	}
}

func (s *Service) tryCertificate(ctx context.Context, a Access, prepare func() error) (Issued, error) {
	if prepare != nil {
		if err := prepare(); err != nil {
			return Issued{}, err
		}
	}
	return s.Certificate(ctx, a)
}

// pendingLook is how many seconds a caller should wait before it asks again for a pending
// certificate.
const pendingLook = 5

// LookAt returns the unix time by which a caller should read the deal again. It returns
// false if time alone no longer changes the deal.
func (s *Service) LookAt(v View) (int64, bool) {
	if v.CertID != nil && !v.Published {
		return v.Now + pendingLook, true
	}
	return s.rules(v.Deal, v.Snapshot).LookAt(v.Now)
}
