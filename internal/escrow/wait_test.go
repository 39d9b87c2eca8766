package escrow_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/waiting"
)

// A wait of a test ends by what the test does, or fails it.
const patience = waiting.Longest

// waitable is a replica whose calls can wait. No other one tells it of changes.
func (h *house) waitable(t *testing.T) (*escrow.Service, *waiting.Hub) {
	t.Helper()
	hub := waiting.New(h.store.Marks, nil, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		hub.Run(t.Context())
	}()
	t.Cleanup(func() { <-done }) // t.Context has ended
	svc := escrow.New(h.store, h.secrets, h.pen, h.keys, h.log, h.well, escrow.Options{EntropyWindow: window, Waits: hub}, slog.New(slog.DiscardHandler))
	return svc, hub
}

// follows waits for a view on another goroutine.
func (g *game) follows(t *testing.T, svc *escrow.Service, w escrow.Wait) <-chan answer[escrow.View] {
	t.Helper()
	access := g.access(t, svc, g.tokens[0], escrow.Read)
	got := make(chan answer[escrow.View], 1)
	go func() { got <- of(svc.ViewAfter(t.Context(), access, w)) }()
	return got
}

// Each change of a deal ends a wait at the process that made it, and at another
// one that nobody tells.
func TestViewWaitsForEachChange(t *testing.T) {
	h := newHouse(t)
	g := h.split(t, nil)
	here, _ := h.waitable(t)
	there, _ := h.waitable(t)
	for _, step := range []struct {
		what string
		take func()
		is   func(escrow.View) bool
	}{
		{"a commit", func() { g.commit(t, here, 0).ok(t) }, func(v escrow.View) bool { return v.State == deal.Committing && v.Commits == 1 }},
		{"the last commit", func() { g.commit(t, here, 1).ok(t) }, func(v escrow.View) bool { return v.State == deal.Revealing && v.Reveals == 0 }},
		{"a reveal", func() { g.reveal(t, here, 1).ok(t) }, func(v escrow.View) bool { return v.State == deal.Revealing && v.Reveals == 1 }},
		{"the last reveal", func() { g.reveal(t, here, 0).ok(t) }, func(v escrow.View) bool { return v.State == deal.Computed }},
	} {
		before := g.view(t, here)
		same := escrow.Wait{For: patience, Same: func(v escrow.View) bool { return v.Snapshot.Mark() == before.Snapshot.Mark() }}
		local, remote := g.follows(t, here, same), g.follows(t, there, same)
		step.take()
		for where, got := range map[string]<-chan answer[escrow.View]{"here": local, "there": remote} {
			if v := (<-got).ok(t); !step.is(v) {
				t.Errorf("%s, %s: %s with %d commits and %d reveals", step.what, where, v.State, v.Commits, v.Reveals)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// What has changed already is answered at once, and so is what changes no more.
func TestViewDoesNotWaitInVain(t *testing.T) {
	h := newHouse(t)
	svc := h.replica() // whose hub nobody runs: a wait there ends by its time alone
	for what, c := range map[string]struct {
		g *game
		w escrow.Wait
	}{
		"the state is another":                           {h.split(t, nil).committed(t), escrow.Wait{State: deal.Committing}},
		"the view is another":                            {h.split(t, nil), escrow.Wait{Same: func(escrow.View) bool { return false }}},
		"its certificate is there":                       {h.split(t, nil).revealed(t), escrow.Wait{}},
		"the state of a deal whose certificate is there": {h.split(t, nil).revealed(t), escrow.Wait{State: deal.Computed}},
	} {
		c.w.For = patience
		began := time.Now()
		want := c.g.view(t, h.replica()).State
		if v := (<-c.g.follows(t, svc, c.w)).ok(t); v.State != want {
			t.Errorf("%s: %s, want %s", what, v.State, want)
		}
		if time.Since(began) >= patience {
			t.Errorf("%s: it waited", what)
		}
	}
	cancelled := h.split(t, nil)
	of(svc.Cancel(t.Context(), cancelled.access(t, svc, cancelled.key, escrow.CancelDeal), nil)).ok(t)
	began := time.Now()
	if v := (<-cancelled.follows(t, svc, escrow.Wait{For: patience})).ok(t); v.State != deal.Cancelled || time.Since(began) >= patience {
		t.Errorf("cancelled: %s", v.State)
	}
}

// At the end of its time, or when the process drains, a wait is answered with the
// deal as it stands.
func TestWaitEndsWithoutAChange(t *testing.T) {
	h := newHouse(t)
	g := h.split(t, nil)
	svc, hub := h.waitable(t)
	if v := (<-g.follows(t, svc, escrow.Wait{For: time.Millisecond})).ok(t); v.State != deal.Open {
		t.Errorf("after its time: %s", v.State)
	}
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	of(svc.CertificateAfter(t.Context(), access, escrow.Wait{For: time.Millisecond}, nil)).refused(t, problem.CertNotReady)
	got := g.follows(t, svc, escrow.Wait{For: time.Hour, State: deal.Open})
	hub.End()
	if v := (<-got).ok(t); v.State != deal.Open {
		t.Errorf("at the drain: %s", v.State)
	}
	of(svc.CertificateAfter(t.Context(), access, escrow.Wait{For: time.Hour}, nil)).refused(t, problem.CertNotReady)
}

// A wait ends when a deadline passes, even if no worker runs.
func TestDeadlineEndsAWait(t *testing.T) {
	h := newHouse(t)
	g := h.split(t, nil).later(t, 3600-2)
	svc, _ := h.waitable(t)
	if v := (<-g.follows(t, svc, escrow.Wait{For: patience, State: deal.Open})).ok(t); v.State != deal.Void {
		t.Errorf("%s after its deadline", v.State)
	}
}

// A certificate is waited for from the first commit on, through a signer that is
// out of reach at the deal's end.
func TestCertificateIsWaitedFor(t *testing.T) {
	h := newHouse(t)
	g := h.split(t, nil).committed(t)
	svc, _ := h.waitable(t)
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	got := make(chan answer[escrow.Issued], 1)
	go func() {
		got <- of(svc.CertificateAfter(t.Context(), access, escrow.Wait{For: patience}, nil))
	}()
	for party := range g.tokens {
		g.reveal(t, h.replica(), party).ok(t)
	}
	if issued := (<-got).ok(t); issued.CertID != g.certID(t) {
		t.Errorf("certificate %s, want %s", issued.CertID, g.certID(t))
	}
}

// A view says by when to look again.
func TestLookAt(t *testing.T) {
	h := newHouse(t)
	svc := h.replica()
	at := func(g *game) int64 {
		t.Helper()
		look, _ := svc.LookAt(g.view(t, svc))
		return look
	}
	open, draw, done := h.split(t, nil), h.random(t, nil).revealed(t), h.split(t, nil).revealed(t)
	if v := open.view(t, svc); at(open) != v.CommitDeadline {
		t.Errorf("open: %d, want %d", at(open), v.CommitDeadline)
	}
	open.committed(t)
	if v := open.view(t, svc); at(open) != v.RevealDeadline {
		t.Errorf("revealing: %d, want %d", at(open), v.RevealDeadline)
	}
	if v := draw.view(t, svc); at(draw) != *v.RoundTime {
		t.Errorf("all have revealed: %d, want the round's time %d", at(draw), *v.RoundTime)
	}
	if at(done) != 0 {
		t.Errorf("certified: %d", at(done))
	}
}
