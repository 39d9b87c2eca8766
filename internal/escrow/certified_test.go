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
