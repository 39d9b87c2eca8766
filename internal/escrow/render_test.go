package escrow_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
)

// A replay whose answer was lost is rendered from the deal as it stands, and the
// deadline decides there as anywhere.
func TestALostAnswerIsRenderedFromTheDealAsItStands(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.split(t, nil)
	is(t, 200, g.commit(t, h.replica(), 0))
	committed := func() map[string]any {
		t.Helper()
		svc := h.replica()
		return is(t, 200, first(svc.Committed(t.Context(), g.access(t, svc, g.tokens[0], escrow.Act))))
	}
	revealed := func() map[string]any {
		t.Helper()
		svc := h.replica()
		return is(t, 200, first(svc.Revealed(t.Context(), g.access(t, svc, g.tokens[0], escrow.Act))))
	}
	if got := committed(); got["state"] != "COMMITTING" || got["committed"] != true || got["party"] != 0. {
		t.Errorf("one of two has committed: %v", got)
	}
	g.later(t, 3600)
	if got := committed(); got["state"] != "VOID" {
		t.Errorf("the other one missed the deadline: %v", got)
	}

	g = h.split(t, nil).committed(t)
	if got := committed(); got["state"] != "REVEALING" {
		t.Errorf("both have committed: %v", got)
	}
	is(t, 200, g.reveal(t, h.replica(), 0))
	if got := revealed(); got["state"] != "REVEALING" || got["revealed"] != true || got["result"] != nil {
		t.Errorf("one of two has revealed: %v", got)
	}
	g.later(t, 7200)
	if got := revealed(); got["state"] != "VOID" || got["result"] != nil {
		t.Errorf("the other one missed the deadline: %v", got)
	}
	if got := committed(); got["state"] != "VOID" {
		t.Errorf("the answer to the commit of a VOID deal: %v", got)
	}

	g = h.split(t, nil).revealed(t)
	if got := revealed(); got["state"] != "COMPUTED" || got["result"] == nil {
		t.Errorf("both have revealed: %v", got)
	}
	if got := committed(); got["state"] != "COMPUTED" {
		t.Errorf("the answer to the commit of a COMPUTED deal: %v", got)
	}
}
