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

// follows waits for a view on another goroutine.
func (g *game) follows(t *testing.T, svc *escrow.Service, w escrow.Wait) <-chan answer[escrow.View] {
	t.Helper()
	w.For = waiting.Longest
	access := g.access(t, svc, g.tokens[0], escrow.Read)
	got := make(chan answer[escrow.View], 1)
	go func() { got <- of(svc.ViewAfter(t.Context(), access, w)) }()
	return got
}

// A wait ends at once if the deal has already changed or is final.
func TestViewDoesNotWaitInVain(t *testing.T) {
	h := newHouse(t)
	svc := h.replica() // its hub does not run: a wait there would end with its time
	cancelled := h.split(t, nil)
	of(svc.Cancel(t.Context(), cancelled.access(t, svc, cancelled.key, escrow.CancelDeal), nil)).ok(t)
	began := time.Now()
	for what, c := range map[string]struct {
		g *game
		w escrow.Wait
	}{
		"the state is another":            {h.split(t, nil).committed(t), escrow.Wait{State: deal.Committing}},
		"the view is another":             {h.split(t, nil), escrow.Wait{Same: func(escrow.View) bool { return false }}},
		"certified":                       {h.split(t, nil).revealed(t), escrow.Wait{}},
		"certified, since the last state": {h.split(t, nil).revealed(t), escrow.Wait{State: deal.Computed}},
		"cancelled":                       {cancelled, escrow.Wait{}},
	} {
		want := c.g.view(t, h.replica()).State
		if v := (<-c.g.follows(t, svc, c.w)).ok(t); v.State != want {
			t.Errorf("%s: %s, want %s", what, v.State, want)
		}
	}
	if time.Since(began) >= waiting.Longest {
		t.Error("a call has waited")
	}
}

// A wait ends when a deadline passes, even if no worker runs.
func TestDeadlineEndsAWait(t *testing.T) {
	h := newHouse(t)
	g := h.split(t, nil).later(t, 3600-2)
	hub := waiting.New(h.store.Marks, nil, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		hub.Run(t.Context())
	}()
	t.Cleanup(func() { <-done }) // t.Context has ended
	svc := h.replicaOn(h.store, escrow.Options{Waits: hub})
	if v := (<-g.follows(t, svc, escrow.Wait{State: deal.Open})).ok(t); v.State != deal.Void {
		t.Errorf("%s after its deadline", v.State)
	}
}

// A draw whose deal completes after the first refusal is tried at once, and then when its
// refusal says.
func TestCertificateWaitsForTheDraw(t *testing.T) {
	h := newHouse(t)
	g := h.random(t, nil).committed(t)
	g.reveal(t, h.replica(), 0).ok(t)
	svc := h.replica() // its hub does not run: only the retry of a refusal ends a wait
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	tries := 0
	before := func() error {
		switch tries++; tries {
		case 1:
			g.reveal(t, h.replica(), 1).ok(t)
		case 2:
			return problem.New(problem.CertNotReady, "the round is due in a second").After(1)
		case 3:
			g.later(t, roundOut).entropy(t, h.replica()).ok(t)
		}
		return nil
	}
	issued := of(svc.CertificateAfter(t.Context(), access, escrow.Wait{For: waiting.Longest}, before)).ok(t)
	if tries != 3 || issued.CertID != g.certID(t) {
		t.Errorf("certificate %s after %d tries, want %s after 3", issued.CertID, tries, g.certID(t))
	}
}
