package escrow

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Wait says how long a read may wait for a change of its deal, and which changes end the
// wait. At most one of State and Same is set. CertificateAfter uses neither.
type Wait struct {
	For time.Duration // 0: do not wait
	// State is the state that the caller knows: then only a change of the state, or of Drawing or
	// Published in store.Progress, ends the wait. If State is "", any change does.
	State deal.State
	Same  func(View) bool // reports whether the caller already has this view
}

// ViewAfter waits for a change of the deal and returns the deal. The wait also ends after w.For, when
// the process drains, or at the time of the beacon round that the deal waits for.
func (s *Service) ViewAfter(ctx context.Context, a Access, w Wait) (View, error) {
	if now, seen := s.seen.Get(a.deal.DealID); w.For > 0 && (!seen || now.LeafIndex == nil || s.awaitsWitnesses(now)) {
		if err := s.awaitChange(ctx, a, w); err != nil {
			return View{}, err
		}
	}
	return s.View(ctx, a)
}

func (s *Service) awaitChange(ctx context.Context, a Access, w Wait) error {
	waiter := s.options.Waits.Join(a.deal.DealID)
	defer waiter.Leave()
	snapshot, err := s.known(ctx, a, w)
	if err != nil || snapshot == nil {
		return err
	}
	timeUp := time.NewTimer(s.untilRound(a.deal, snapshot, w.For))
	defer timeUp.Stop()
	known, stateOnly := snapshot.Progress(), w.State != ""
	for snapshot.Progress().Same(known, stateOnly) && !s.final(snapshot) {
		wake := func() bool { return false }
		if s.awaitsWitnesses(snapshot) { // no process announces a cosigned tree
			wake = time.AfterFunc(witnessInterval, waiter.Wake).Stop
		}
		changed, err := pause(ctx, a.deal, waiter, snapshot.Progress(), stateOnly, timeUp.C)
		wake()
		if err != nil || !changed {
			return cmp.Or(err, ctx.Err())
		}
		if snapshot, err = s.advance(ctx, a, store.NoParties); err != nil {
			return err
		}
	}
	return nil
}

// known returns the deal, or nil if it already differs from what the caller knows.
func (s *Service) known(ctx context.Context, a Access, w Wait) (*store.Snapshot, error) {
	if w.Same != nil {
		view, err := s.View(ctx, a)
		if err != nil || !w.Same(view) {
			return nil, err
		}
		return view.Snapshot, nil
	}
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil || w.State != "" && s.rules(a.deal, now).State() != w.State {
		return nil, err
	}
	return now, nil
}

// untilRound returns how long a wait may last: at most until the beacon round, from which parties can
// draw, if the deal waits only for it.
func (s *Service) untilRound(d *Deal, now *store.Snapshot, longest time.Duration) time.Duration {
	if !d.Random() || !s.rules(d, now).AllRevealed() || *d.RoundTime <= now.Now || *d.RoundTime > now.Now+int64(waiting.Longest/time.Second) {
		return longest
	}
	return min(time.Duration(*d.RoundTime*1000-now.NowMilli)*time.Millisecond, longest)
}

// witnessInterval is how often a waiting call looks whether its COMPUTED deal has become CERTIFIED.
const witnessInterval = time.Second

// final reports whether the deal can no longer change.
func (s *Service) final(now *store.Snapshot) bool {
	return now.Published && !s.awaitsWitnesses(now) || now.Phase == deal.Expired || now.Phase == deal.Cancelled
}

// pause waits for a change of the deal, which stays in memory. While the process lacks memory for other calls, it ends the
// waits of the network with the most calls. The metrics of latency do not count the wait.
func pause(ctx context.Context, d *Deal, waiter *waiting.Waiter, known store.Progress, stateOnly bool, timeUp <-chan time.Time) (bool, error) {
	began := time.Now()
	if err := budget.From(ctx).Hold(ctx, int64(d.bytes())); err != nil {
		return false, err
	}
	resume := budget.From(ctx).Wait(int64(d.bytes()), waiter.End)
	changed := waiter.Wait(ctx, known, stateOnly, timeUp)
	telemetry.NoteWait(ctx, time.Since(began))
	return changed, resume(ctx)
}

// CertificateAfter returns the deal's certificate. While it gets CERT_NOT_READY, it waits, at most w.For
// in total, and tries again at each change of the deal's state, once more at the end, and after the
// error's RetryAfter if the deal waits for its draw.
//
// Each try first calls prepare, if that is not nil, and fails with its error. If prepare is nil, the
// wait also ends once the caller can draw, unless the service draws at once (deal.Deal.DrawsAtOnce).
func (s *Service) CertificateAfter(ctx context.Context, a Access, w Wait, prepare func() error) (Issued, error) {
	if w.For <= 0 {
		return s.tryCertificate(ctx, a, prepare)
	}
	waiter := s.options.Waits.Join(a.deal.DealID)
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
		changed, refused := pause(ctx, a.deal, waiter, now.Progress(), true, timeUp.C)
		switch {
		case refused != nil:
			return Issued{}, refused
		case changed:
			continue
		case ctx.Err() != nil:
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

// LookAt returns the unix time by which a caller should read the deal again. It returns false if time
// alone no longer changes the deal.
func (s *Service) LookAt(v View) (int64, bool) {
	if v.CertID != nil && !v.Published || s.awaitsWitnesses(v.Snapshot) {
		return v.Now + 5, true
	}
	return s.rules(v.Deal, v.Snapshot).LookAt(v.Now)
}
