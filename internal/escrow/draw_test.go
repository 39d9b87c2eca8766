package escrow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Times of a deal that fixture.random has created, in seconds after the creation.
const (
	roundOut = 7200 + 600 + 6            // the beacon round is published
	drawTime = roundOut + deal.DrawDelay // the worker draws, if no party has drawn
)

func beaconOf(t *testing.T, d escrow.Drawn) (pinned struct {
	ChainHash  string `json:"chain_hash"`
	Randomness string `json:"randomness"`
	Signature  string `json:"signature"`
}) {
	t.Helper()
	result := struct{ Beacon any }{&pinned}
	check(t, json.Unmarshal(d.Result, &result))
	return pinned
}

func TestBeaconFailures(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	own, strange := h.beacon.Chain(), devbeacon.New([]byte("strange")).Chain()
	for _, row := range []struct {
		name  string
		chain drand.Chain
		err   error
		code  problem.Code
	}{
		{"not yet", own, fmt.Errorf("%w: asked early", beacon.ErrNotYet), problem.BeaconNotReady},
		{"dead", own, fmt.Errorf("%w: all relays", beacon.ErrUnavailable), problem.BeaconUnavailable},
		{"busy", own, fmt.Errorf("%w: 7", beacon.ErrBusy), problem.Overloaded},
		{"a chain that the deal did not declare", strange, nil, problem.BeaconUnavailable},
	} {
		g := h.random(t, nil).revealed(t).later(t, drawTime)
		g.exec(t, "DELETE FROM beacon_rounds") // an earlier case may have stored the same round
		h.beacon.set(row.chain, row.err)
		if p := g.entropy(t, h.replica()).refused(t, row.code); row.code == problem.Overloaded && p.RetryAfter == 0 {
			t.Errorf("%s: the error has no Retry-After", row.name)
		}
		if _, err := h.replica().ProcessDeal(t.Context(), g.id); !problem.Is(err, row.code) {
			t.Errorf("%s: ProcessDeal: got error %v, want %s", row.name, err, row.code)
		}
		if g.phase(t) != "REVEALING" {
			t.Errorf("%s: the deal is %s, want REVEALING", row.name, g.phase(t))
		}
		h.beacon.set(own, nil)
		if drawn := g.entropy(t, h.replica()).ok(t); drawn.State != deal.Computed {
			t.Errorf("%s, then the beacon works again: entropy is answered %+v, want COMPUTED", row.name, drawn)
		}
		g.attended(t).published(t)
	}
}

// The service does not fetch a beacon round before the round is due. Until then, RetryAfter of
// CERT_NOT_READY is the time until the round is due. Then it is the time until the worker draws.
// Once the worker's draw is overdue, RetryAfter is 15 s.
func TestLookAgainForADraw(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := h.random(t, nil).revealed(t)
	h.beacon.set(h.beacon.Chain(), beacon.ErrUnavailable)
	g.entropy(t, h.replica()).refused(t, problem.BeaconNotReady)
	if n := h.beacon.fetched(); n != 0 {
		t.Errorf("a round that is not due was fetched %d times, want 0", n)
	}
	for _, row := range []struct {
		later       int64
		least, most int64
		says        string
	}{
		{roundOut - 100, 1, 100, "the beacon round is due at"},
		{100, 1, deal.DrawDelay, "the beacon round is published; the service draws in"},
		{deal.DrawDelay, 15, 15, "the beacon round is published; draw with"},
	} {
		err := g.later(t, row.later).certificate(t, h.replica()).err
		if retry := int64(problem.From(err).RetryAfter); !problem.Is(err, problem.CertNotReady) || retry < row.least || retry > row.most {
			t.Errorf("%d s later: got error %v with retry after %d s, want CERT_NOT_READY with %d to %d s", row.later, err, retry, row.least, row.most)
		}
		if !strings.Contains(err.Error(), row.says) {
			t.Errorf("%d s later: got error %v, want one that says %q", row.later, err, row.says)
		}
	}
	sealed := h.random(t, nil).revealed(t).later(t, roundOut)
	sealed.exec(t, "UPDATE deals SET seal_time = 1 WHERE deal_id = $1", sealed.id)
	err := sealed.certificate(t, h.replica()).err
	if !problem.Is(err, problem.CertNotReady) || problem.From(err).RetryAfter != 2 || !strings.Contains(err.Error(), "the service draws now") {
		t.Errorf("with seals: got error %v, want CERT_NOT_READY with 2 s", err)
	}
	again, err := h.replica().ProcessDeal(t.Context(), sealed.id) // the relays fail
	if err != nil || again != 3*time.Second {
		t.Errorf("the draw without its round: %v, %v; want another look in 3 s", again, err)
	}
}

// If a stored round verifies, the draw uses the stored round and does not call the beacon.
// Otherwise the draw fetches the round again.
func TestStoredRounds(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := h.random(t, nil).revealed(t).later(t, roundOut)
	round := of(h.beacon.Fetch(t.Context(), g.round)).ok(t)
	check(t, h.store.PutRound(t.Context(), h.beacon.Chain().Hash, g.round, round.Randomness, round.Signature))
	h.beacon.set(h.beacon.Chain(), beacon.ErrUnavailable)
	drawn := g.entropy(t, h.replica()).ok(t)
	if drawn.State != deal.Computed || h.beacon.fetched() != 1 {
		t.Errorf("with a stored round: got %+v after %d fetches, want COMPUTED after 1 (by the test itself)", drawn, h.beacon.fetched())
	}

	h.beacon.set(h.beacon.Chain(), nil)
	g = h.random(t, nil).revealed(t).later(t, roundOut)
	g.exec(t, "DELETE FROM beacon_rounds")
	check(t, h.store.PutRound(t.Context(), h.beacon.Chain().Hash, g.round, round.Signature[:64], round.Signature))
	drawn = g.entropy(t, h.replica()).ok(t)
	want := of(h.beacon.Fetch(t.Context(), g.round)).ok(t)
	if got := beaconOf(t, drawn).Randomness; got != want.Randomness {
		t.Errorf("with a forged stored round: drawn with randomness %s, want %s", got, want.Randomness)
	}
}

// A deal whose beacon round cannot be fetched becomes EXPIRED at the first call after the entropy
// window (Options.EntropyWindow). An EXPIRED deal never has a certificate.
func TestExpiry(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.beacon.set(h.beacon.Chain(), beacon.ErrUnavailable)
	for name, meet := range meets {
		t.Run(name, func(t *testing.T) {
			g := h.random(t, purge).revealed(t)
			g.later(t, roundOut+int64(window/time.Second)-60)
			_ = meet(t, g)
			if g.phase(t) != "REVEALING" {
				t.Fatalf("in the last minute of the window the deal is %s, want REVEALING", g.phase(t))
			}
			h.beacon.set(h.beacon.Chain(), beacon.ErrBusy)
			_ = meet(t, g.later(t, 61))
			h.beacon.set(h.beacon.Chain(), beacon.ErrUnavailable)
			if g.phase(t) != "REVEALING" {
				t.Fatalf("after the window, but with too many fetches, the deal is %s, want REVEALING", g.phase(t))
			}
			_ = meet(t, g)
			if g.phase(t) != "EXPIRED" {
				t.Fatalf("after the window the deal is %s, want EXPIRED", g.phase(t))
			}
			g.certificate(t, h.replica()).refused(t, problem.NoCertificate)
			g.entropy(t, h.replica()).refused(t, problem.DealEnded)
			if n := g.text(t, "SELECT count(*)::text FROM certificates WHERE deal_id = $1", g.id); n != "0" {
				t.Errorf("the expired deal has %s certificates, want 0", n)
			}
			if n := g.text(t, "SELECT count(*)::text FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", g.id); n != "0" {
				t.Errorf("%s inputs are left of a purged deal, want 0", n)
			}
			if v := g.view(t, h.replica()); v.State != deal.Expired || v.VoidFlakers != nil || v.Result != nil || v.RevealsClosedAt == nil {
				t.Errorf("the view is %s, want EXPIRED with reveals_closed_at, without flakers and result", show(v))
			}
		})
	}
}

// A draw after the entropy window (Options.EntropyWindow) succeeds if the beacon round can be
// fetched. A failure of the database does not make the deal expire.
func TestDrawAfterTheWindow(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := h.random(t, nil).revealed(t).later(t, roundOut+int64(window/time.Second)+60)
	g.exec(t, "ALTER TABLE beacon_rounds RENAME TO beacon_rounds_away")
	if _, err := h.replica().ProcessDeal(t.Context(), g.id); err == nil || g.phase(t) != "REVEALING" {
		t.Errorf("without the table beacon_rounds: got error %v and the deal is %s, want an error and REVEALING", err, g.phase(t))
	}
	g.exec(t, "ALTER TABLE beacon_rounds_away RENAME TO beacon_rounds")
	if v := g.view(t, h.replica()); v.State != deal.Computed {
		t.Errorf("the view is %s, want COMPUTED", show(v))
	}
	g.attended(t).published(t)
}

// Concurrent draws by several replicas and the worker yield one result and one certificate.
func TestConcurrentDraws(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for range 4 {
		g := h.random(t, nil).revealed(t).later(t, drawTime)
		leaves := h.log.size()
		shared := h.replica()
		results := make([]string, 8)
		var group sync.WaitGroup
		for i := range results {
			svc := shared
			if i%2 == 1 {
				svc = h.replica()
			}
			access := g.access(t, svc, g.tokens[1], escrow.DrawEntropy)
			group.Go(func() {
				drawn, err := svc.Entropy(t.Context(), access)
				if err != nil {
					t.Errorf("Entropy: %v, want no error", err)
				}
				results[i] = string(drawn.Result)
			})
		}
		group.Go(func() {
			if _, err := h.replica().ProcessDeal(t.Context(), g.id); err != nil {
				t.Errorf("ProcessDeal: %v, want no error", err)
			}
		})
		group.Wait()
		for i, result := range results {
			if result != results[0] || result == "" {
				t.Errorf("call %d drew %q, want %q, as call 0", i, result, results[0])
			}
		}
		g.attended(t).published(t)
		if h.log.size() != leaves+1 {
			t.Errorf("%d new leaves for one certificate, want 1", h.log.size()-leaves)
		}
	}
}
