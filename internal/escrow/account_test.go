package escrow_test

import (
	"log/slog"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
)

// What one API key has open is bounded, on all replicas together, and what has
// ended makes room.
func TestOpenDealsOfOneKeyAreBounded(t *testing.T) {
	const most = 32
	h := newHouse(t)
	replica := func() *escrow.Service {
		return escrow.New(h.store, h.secret, h.pen, h.keys, h.log, h.well, escrow.Options{EntropyWindow: window, OpenUnits: most}, slog.New(slog.DiscardHandler))
	}
	now := h.now(t)
	create := func(on *escrow.Service, key string, parties int) answer[escrow.Created] {
		d := escrow.Declared{Algorithm: "random.v1", Params: map[string]any{"beacon_round": h.well.Chain().RoundAt(now+7200) + 9},
			Mode: "sealed", Retention: "standard", CommitDeadline: now + 3600, RevealDeadline: now + 7200, Labels: make([]string, parties)}
		for i := range d.Labels {
			d.Labels[i] = "a"
		}
		return of(on.Create(t.Context(), of(on.Authenticate(t.Context(), key)).ok(t), d, nil))
	}
	one, other := replica(), replica()
	greedy, frugal := of(one.CreateKey(t.Context(), nil)).ok(t).APIKey, of(one.CreateKey(t.Context(), nil)).ok(t).APIKey
	made := 0
	for create(one, greedy, 2).err == nil && create(other, greedy, 2).err == nil && made < 2*most {
		made += 2
	}
	if made < most-2 || made > most+2*most/16 {
		t.Errorf("two replicas made %d deals, of %d units", made, most)
	}
	for _, on := range []*escrow.Service{one, other, replica()} {
		if p := create(on, greedy, 2).refused(t, problem.RateLimited); p.RetryAfter < 1 {
			t.Errorf("Retry-After is missing: %v", p)
		}
	}
	// Large deals cost more; each key may have one, whatever it costs.
	create(one, frugal, 2000).ok(t)
	create(one, frugal, 900).ok(t)
	create(one, frugal, 2).ok(t)
	create(one, frugal, 2).refused(t, problem.RateLimited)
	create(one, of(one.CreateKey(t.Context(), nil)).ok(t).APIKey, 10_000).ok(t)

	h.exec(t, "UPDATE deals SET phase = 'CANCELLED' WHERE parties = 2 AND deal_id IN (SELECT deal_id FROM deals WHERE parties = 2 LIMIT 10)")
	fresh := replica()
	made -= 10
	for create(fresh, greedy, 2).err == nil {
		made++
	}
	if made != most {
		t.Errorf("a replica that counts anew lets the key have %d deals, want %d", made, most)
	}
}
