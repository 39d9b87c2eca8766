package escrow_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// A COMPUTED deal shows CERTIFIED once a quorum of witnesses has cosigned a tree that
// contains the deal's leaf. The stored phase and the certificate stay the same.
func TestQuorumShowsCertified(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	first := h.split(t, func(d *escrow.Declared) { d.Mode = "open" }).revealed(t)
	second := h.split(t, nil).revealed(t)
	drawn := h.random(t, nil).revealed(t).later(t, roundOut)
	drawn.entropy(t, h.replica()).ok(t)
	void := h.shapley(t, `{"accept":true}`, `{"accept":false}`).revealed(t)
	svc := h.replica()
	show := func(g *game, want deal.State) {
		t.Helper()
		for _, by := range []*escrow.Service{svc, h.replica()} {
			if v := g.view(t, by); v.State != want {
				t.Errorf("deal %s shows %s, want %s", g.id, v.State, want)
			}
		}
	}
	before := first.certificate(t, svc).ok(t)
	for _, g := range []*game{first, second, drawn} {
		show(g, deal.Computed)
	}
	h.log.cosigned.Store(1) // the cosigned tree covers only leaf 0
	show(first, deal.Certified)
	show(second, deal.Computed)
	h.log.cosigned.Store(4)
	show(second, deal.Certified)
	show(drawn, deal.Certified)
	show(void, deal.Void)

	if again := drawn.entropy(t, svc).ok(t); again.State != deal.Certified || again.Result == nil {
		t.Errorf("entropy of a certified deal is answered %+v, want CERTIFIED with the result", again)
	}
	if again := of(svc.StoredReveal(t.Context(), first.access(t, svc, first.tokens[0], escrow.AsParty))).ok(t); again.State != deal.Certified || again.Result == nil {
		t.Errorf("StoredReveal = %+v, want CERTIFIED with the result", again)
	}
	if again := of(svc.StoredCommit(t.Context(), first.access(t, svc, first.tokens[0], escrow.AsParty))).ok(t); again.State != deal.Certified {
		t.Errorf("StoredCommit = %+v, want CERTIFIED", again)
	}
	if inputs := of(svc.Inputs(t.Context(), first.access(t, svc, first.tokens[1], escrow.AsParty))).ok(t).Inputs; len(inputs) != 2 {
		t.Errorf("Inputs returns %d inputs, want 2", len(inputs))
	}
	first.reveal(t, svc, 0).refused(t, problem.DealEnded)
	same(t, first.certificate(t, svc).ok(t).Payload, before.Payload)
	if phase := first.phase(t); phase != string(deal.Computed) {
		t.Errorf("the stored phase is %s, want COMPUTED", phase)
	}
}

// A deal that was shown as CERTIFIED stays so, for a process that the log tells nothing: the witnesses are
// out of its configuration, or its read port is out of reach.
func TestCertifiedNeverFallsBack(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.log.witnessed.Store(true)
	g := h.split(t, nil).revealed(t)
	cached := h.replica()
	for range 2 { // the second view could come from the cache
		if v := g.view(t, cached); v.State != deal.Computed {
			t.Fatalf("the deal shows %s before a quorum has cosigned, want COMPUTED", v.State)
		}
	}
	h.log.cosigned.Store(1)
	if v := g.view(t, h.replica()); v.State != deal.Certified {
		t.Fatalf("the deal shows %s, want CERTIFIED", v.State)
	}
	h.log.cosigned.Store(0)
	for _, witnessed := range []bool{true, false} {
		h.log.witnessed.Store(witnessed)
		h.log.certified.Store(0)
		for what, svc := range map[string]*escrow.Service{"a process with the deal in its cache": cached, "a new process": h.replica()} {
			if v := g.view(t, svc); v.State != deal.Certified {
				t.Errorf("%s shows %s (witnessed: %t), want CERTIFIED", what, v.State, witnessed)
			}
		}
	}
	later := h.split(t, nil).revealed(t)
	if v := later.view(t, h.replica()); v.State != deal.Computed {
		t.Errorf("a later deal shows %s, want COMPUTED", v.State)
	}
}

// A wait for a change of a COMPUTED deal ends when the witnesses have cosigned it.
func TestWaitForCertified(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.log.witnessed.Store(true)
	g := h.split(t, nil).revealed(t)
	svc := h.waitable(t)
	v := g.view(t, svc)
	if _, more := svc.LookAt(v); v.State != deal.Computed || !more {
		t.Fatalf("the deal shows %s, to be read again: %t; want COMPUTED and true", v.State, more)
	}
	var waits []<-chan answer[escrow.View]
	for _, w := range []escrow.Wait{{}, {State: deal.Computed}, {Same: func(v escrow.View) bool { return v.State == deal.Computed }}} {
		waits = append(waits, g.follows(t, svc, w))
	}
	h.log.cosigned.Store(1)
	for i, got := range waits {
		if v := (<-got).ok(t); v.State != deal.Certified {
			t.Errorf("wait %d ended with %s, want CERTIFIED", i, v.State)
		}
	}
	for _, w := range []escrow.Wait{{}, {State: deal.Certified}, {State: deal.Computed}} {
		if v := (<-g.follows(t, svc, w)).ok(t); v.State != deal.Certified {
			t.Errorf("a later wait ended with %s, want CERTIFIED", v.State)
		}
	}
}
