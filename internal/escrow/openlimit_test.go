package escrow_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func (h *fixture) bounding(most int) *escrow.Service {
	return h.replicaOn(h.store, escrow.Options{OpenUnits: most})
}

func (h *fixture) declared(now int64, parties int) escrow.Declared {
	return escrow.Declared{Terms: deal.Terms{Algorithm: "random.v1", Params: beaconRound(h.beacon.Chain().RoundAt(now+7200) + 9),
		Mode: "sealed", Retention: "standard", CommitDeadline: now + 3600, RevealDeadline: now + 7200, Labels: slices.Repeat([]string{"a"}, parties)}}
}

func TestOpenDealsOfOneKeyAreBounded(t *testing.T) {
	const most = 32
	h := newFixture(t)
	replica := func() *escrow.Service { return h.bounding(most) }
	now := h.now(t)
	create := func(on *escrow.Service, key string, parties int) answer[escrow.Created] {
		return of(on.Create(t.Context(), of(on.Authenticate(t.Context(), key)).ok(t), h.declared(now, parties), nil, free))
	}
	one, other := replica(), replica()
	greedy, frugal := of(one.CreateKey(t.Context(), nil)).ok(t).APIKey, of(one.CreateKey(t.Context(), nil)).ok(t).APIKey
	made := 0
	for create(one, greedy, 2).err == nil && create(other, greedy, 2).err == nil && made < 2*most {
		made += 2
	}
	if made < most-2 || made > most+2*most/16 {
		t.Errorf("two replicas let the key have %d deals, want %d to %d for a bound of %d units", made, most-2, most+2*most/16, most)
	}
	for _, on := range []*escrow.Service{one, other, replica()} {
		if p := create(on, greedy, 2).refused(t, problem.RateLimited); p.RetryAfter < 1 {
			t.Errorf("RATE_LIMITED has RetryAfter %d, want at least 1: %v", p.RetryAfter, p)
		}
	}
	// The limit counts units (Declared.Units). A key without open deals can create a deal of any size.
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
		t.Errorf("a replica that counts again lets the key have %d open deals, want %d", made, most)
	}
}

func TestCreationsInFlightAreCounted(t *testing.T) {
	const most = 4 // so low that every creation counts the key's open deals in the database
	h := newFixture(t)
	on, deal := h.bounding(most), h.declared(h.now(t), 2)
	key := of(on.CreateKey(t.Context(), nil)).ok(t).APIKey
	owner := of(on.Authenticate(t.Context(), key)).ok(t)

	lock := of(h.sql.Begin(t.Context())).ok(t)
	defer lock.Rollback(context.Background())
	_ = of(lock.Exec(t.Context(), "LOCK TABLE deals IN SHARE ROW EXCLUSIVE MODE")).ok(t)
	answers := make(chan answer[escrow.Created], most+1)
	for range most + 1 {
		go func() { answers <- of(on.Create(t.Context(), owner, deal, nil, free)) }()
	}
	(<-answers).refused(t, problem.RateLimited) // the other creations still wait for the table lock
	check(t, lock.Rollback(t.Context()))
	for range most {
		(<-answers).ok(t)
	}
	// After one cancellation, a new replica, which counts the key's open deals in the database,
	// allows exactly one new deal.
	h.exec(t, "UPDATE deals SET phase = 'CANCELLED' WHERE deal_id = (SELECT min(deal_id) FROM deals)")
	later := h.bounding(most)
	owner = of(later.Authenticate(t.Context(), key)).ok(t)
	_ = of(later.Create(t.Context(), owner, deal, nil, free)).ok(t)
	of(later.Create(t.Context(), owner, deal, nil, free)).refused(t, problem.RateLimited)
}

func TestTextsAreCharged(t *testing.T) {
	plain := escrow.Declared{Terms: deal.Terms{Algorithm: "split.v1", Labels: []string{"a", "b"}, Params: []byte(`{"items":["car"]}`)}}
	said := plain
	said.Title, said.Message = "é", strings.Repeat("😀", 1000)
	if got := said.Storage() - plain.Storage(); got != 4002 {
		t.Errorf("title and message reserve %d bytes of storage, want 4002", got)
	}
	said.Message = strings.Repeat("x", 10<<10)
	if got := said.Units() - plain.Units(); got != 1 {
		t.Errorf("10 KiB of texts cost %d units, want 1", got)
	}
}

// The chart says what a deal reserves: about 20 KiB for two parties, and 90 MiB for 10,000.
func TestWhatADealReserves(t *testing.T) {
	for algorithm, params := range map[string]string{"split.v1": `{"items":["car","boat"]}`, "random.v1": `{"beacon_round":1}`, "shapley.v1": `{"coalition_values":{"a,b":90}}`} {
		d := escrow.Declared{Terms: deal.Terms{Algorithm: algorithm, Labels: []string{"a", "b"}, Params: []byte(params)}}
		if kib := d.Storage() >> 10; kib < 18 || kib > 22 {
			t.Errorf("two parties of %s reserve %d KiB, want about 20", algorithm, kib)
		}
	}
	all := escrow.Declared{Terms: deal.Terms{Algorithm: "random.v1", Labels: slices.Repeat([]string{"a"}, 10_000), Params: []byte(`{"beacon_round":1}`)}}
	if mib := all.Storage() >> 20; mib < 80 || mib > 100 {
		t.Errorf("10,000 parties reserve %d MiB, want about 90", mib)
	}
}
