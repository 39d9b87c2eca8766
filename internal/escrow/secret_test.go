package escrow_test

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/serversecret"
)

func TestAnotherServerSecretIsRefused(t *testing.T) {
	t.Parallel()
	other := of(sealing.NewSecrets(of(sealing.New([]byte(strings.Repeat("x", 32)))).ok(t))).ok(t)
	refused := func(t *testing.T, h *house, s *sealing.Secrets) {
		t.Helper()
		if err := serversecret.Check(t.Context(), h.store, s); err == nil || !strings.Contains(err.Error(), "put the former one back") {
			t.Errorf("%v; want advice to put the former secret back", err)
		}
	}
	revealed := func(t *testing.T, h *house) *game {
		t.Helper()
		g, svc := h.split(t, nil), h.replica()
		for party := range g.inputs {
			g.commit(t, svc, party).ok(t)
		}
		g.reveal(t, svc, 0).ok(t)
		return g
	}

	t.Run("the first process records its own", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t)
		check(t, serversecret.Check(t.Context(), h.store, h.secrets))
		refused(t, h, other)
		check(t, serversecret.Check(t.Context(), h.store, h.secrets))
	})
	t.Run("a database of the release before, with an input of a deal that has not ended", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t)
		revealed(t, h)
		refused(t, h, other)
		check(t, serversecret.Check(t.Context(), h.store, h.secrets))
		refused(t, h, other)
	})
	t.Run("adopted", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t)
		check(t, serversecret.Check(t.Context(), h.store, h.secrets))
		g := revealed(t, h)
		if deals, certificates, err := h.store.Live(t.Context()); deals != 1 || certificates != 0 || err != nil {
			t.Errorf("%d deals and %d certificates need the secret, %v; want 1 and 0", deals, certificates, err)
		}
		g.reveal(t, h.replica(), 1).ok(t)
		if deals, _, err := h.store.Live(t.Context()); deals != 0 || err != nil {
			t.Errorf("%d deals need the secret, %v; want none", deals, err)
		}
		check(t, h.store.ClaimSecret(t.Context(), other.Writer().Fingerprint(), true))
		check(t, serversecret.Check(t.Context(), h.store, other))
		refused(t, h, h.secrets)
	})
}
