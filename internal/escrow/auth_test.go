package escrow_test

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// No refusal of a cancellation asks for a credential that the next call would refuse.
func TestOnlyTheInitiatorsKeyIsAskedForToCancel(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	svc := h.at(h.origin)
	own, other := h.split(t, nil), h.split(t, nil)
	for name, row := range map[string]struct{ credential, deal string }{
		"a party":                     {own.tokens[0], own.id},
		"a party of another deal":     {other.tokens[0], own.id},
		"another initiator":           {other.key, own.id},
		"a party, unknown deal":       {own.tokens[0], "nope"},
		"the initiator, unknown deal": {own.key, "nope"},
	} {
		t.Run(name, func(t *testing.T) {
			who := of(svc.Authenticate(t.Context(), row.credential)).ok(t)
			text := of(svc.Authorize(t.Context(), who, row.deal, escrow.CancelDeal)).refused(t, problem.Forbidden).In(problem.Call.REST)
			if !strings.Contains(text, "the API key that created the deal") || !strings.Contains(text, "the deal_id that POST /v1/deals returned") || strings.Contains(text, "token") {
				t.Errorf("got %q, want a text that asks for the key of the initiator and the deal_id, and for no invite token", text)
			}
		})
	}
}

// A token is known once it has admitted a caller, and no other credential is.
func TestTokensAreKnown(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	svc := h.at(h.origin)
	d := h.split(t, nil)
	of(svc.Authenticate(t.Context(), d.key)).ok(t)
	known := false
	for tries := 0; tries < 100 && !known; tries++ { // a database server that another test starts meanwhile empties the caches
		of(svc.Authenticate(t.Context(), d.tokens[0])).ok(t)
		known = svc.KnowsToken(d.tokens[0])
	}
	if !known {
		t.Error("a token that was used is not known")
	}
	for _, credential := range []string{"", d.key, "it_" + strings.Repeat("A", 32)} {
		if svc.KnowsToken(credential) {
			t.Errorf("%q is known as a token", credential)
		}
	}
}
