package escrow_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/beacon/devbeacon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/problem"
)

// From the creation of a random deal: its round is out, and the worker's turn,
// some seconds on.
const (
	roundOut = 7200 + 600 + 6
	drawTime = roundOut + deal.DrawDelay
)

// SPEC 4 rule 2: once all reveals are in, the server itself fetches the round,
// pins it, computes and issues; repeat calls report the result.
func TestEntropy(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.random(t, nil)
	refused(t, problem.RevealsMissing, g.entropy(t, h.replica()))
	g.committed(t)
	is(t, 200, g.reveal(t, h.replica(), 1))
	refused(t, problem.RevealsMissing, g.entropy(t, h.replica()))
	if body := is(t, 200, g.reveal(t, h.replica(), 0)); body["state"] != "REVEALING" || body["result"] != nil {
		t.Errorf("the last reveal is answered %v", body)
	}
	if p := refused(t, problem.BeaconNotReady, g.entropy(t, h.replica())); p.RetryAfter <= time.Hour {
		t.Errorf("a round that is due in two hours: retry after %v", p.RetryAfter)
	}
	refused(t, problem.CertNotReady, g.certificate(t, h.replica()))
	if v := g.view(t, h.replica()); v["state"] != "REVEALING" || v["reveals_closed_at"] == nil || v["computed_at"] != nil {
		t.Errorf("waiting for its round it shows as %v", v)
	}
	if h.well.fetched() != 0 {
		t.Error("the beacon is asked for a round that is not due")
	}

	g.later(t, roundOut)
	drawn := is(t, 200, g.entropy(t, h.replica()))
	if drawn["state"] != "COMPUTED" || drawn["result"] == nil {
		t.Fatalf("drawn: %v", drawn)
	}
	pinned := drawn["result"].(map[string]any)["beacon"].(map[string]any)
	if pinned["chain_hash"] != h.well.Chain().Hash || pinned["signature"] != hex.EncodeToString(h.well.server.Sign(g.round)) {
		t.Errorf("pinned %v", pinned)
	}
	h.well.set(h.well.Chain(), beacon.ErrUnavailable)
	again := is(t, 200, g.entropy(t, h.replica()))
	if show(again["result"]) != show(drawn["result"]) || h.well.fetched() != 1 {
		t.Errorf("a repeat call reports %v after %d fetches", again, h.well.fetched())
	}
	c := g.attended(t).published(t)
	if show(c["result"]) != show(drawn["result"]) || !slices.Contains(c["properties"].([]any), any("beacon-verified")) {
		t.Errorf("certified as %v", c)
	}
	if repeat := is(t, 200, g.entropy(t, h.replica())); repeat["certificate_id"] != c["cert_id"] {
		t.Errorf("a repeat call names certificate %v, want %v", repeat["certificate_id"], c["cert_id"])
	}
}

// Whatever the beacon does, nothing changes until it gives the round.
func TestBeaconTrouble(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	own, strange := h.well.Chain(), devbeacon.New([]byte("strange")).Chain()
	for _, row := range []struct {
		what  string
		chain beacon.Chain
		err   error
		code  problem.Code
	}{
		{"not yet", own, fmt.Errorf("%w: asked early", beacon.ErrNotYet), problem.BeaconNotReady},
		{"dead", own, fmt.Errorf("%w: all relays", beacon.ErrUnavailable), problem.BeaconUnavailable},
		{"a chain that the deal did not declare", strange, nil, problem.BeaconUnavailable},
	} {
		g := h.random(t, nil).revealed(t).later(t, drawTime)
		g.exec(t, "DELETE FROM beacon_rounds") // the deals before may have had the same one
		h.well.set(row.chain, row.err)
		refused(t, row.code, g.entropy(t, h.replica()))
		if _, err := h.replica().Attend(t.Context(), g.id); !problem.Is(err, row.code) {
			t.Errorf("%s: the worker is told %v, want %s", row.what, err, row.code)
		}
		if g.phase(t) != "REVEALING" {
			t.Errorf("%s: the deal is %s", row.what, g.phase(t))
		}
		h.well.set(own, nil)
		if body := is(t, 200, g.entropy(t, h.replica())); body["state"] != "COMPUTED" {
			t.Errorf("%s, and then well: %v", row.what, body)
		}
		g.attended(t).published(t)
	}
}

// A verified round is kept for ever; a kept row is not trusted.
func TestKeptRounds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.random(t, nil).revealed(t).later(t, roundOut)
	round, err := h.well.Fetch(t.Context(), g.round)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.store.PutRound(t.Context(), h.well.Chain().Hash, g.round, round.Randomness, round.Signature); err != nil {
		t.Fatal(err)
	}
	h.well.set(h.well.Chain(), beacon.ErrUnavailable)
	drawn := is(t, 200, g.entropy(t, h.replica()))
	if drawn["state"] != "COMPUTED" || h.well.fetched() != 1 {
		t.Errorf("with a kept round: %v after %d fetches", drawn, h.well.fetched())
	}

	h.well.set(h.well.Chain(), nil)
	g = h.random(t, nil).revealed(t).later(t, roundOut)
	g.exec(t, "DELETE FROM beacon_rounds")
	if err := h.store.PutRound(t.Context(), h.well.Chain().Hash, g.round, round.Signature[:64], round.Signature); err != nil {
		t.Fatal(err)
	}
	drawn = is(t, 200, g.entropy(t, h.replica()))
	want, err := h.well.Fetch(t.Context(), g.round)
	if err != nil {
		t.Fatal(err)
	}
	if got := drawn["result"].(map[string]any)["beacon"].(map[string]any)["randomness"]; got != want.Randomness {
		t.Errorf("a row that lies is pinned: %v, want %s", got, want.Randomness)
	}
}

// The worker leaves a draw to the parties for a while, and then makes it.
func TestTheWorkerDraws(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.random(t, nil).revealed(t)
	for _, when := range []struct {
		later int64
		most  time.Duration
	}{{0, time.Hour + time.Second}, {roundOut, deal.DrawDelay * time.Second}} {
		g := h.random(t, nil).revealed(t).later(t, when.later)
		again, err := h.replica().Attend(t.Context(), g.id)
		if err != nil || again <= 0 || again > when.most || g.phase(t) != "REVEALING" {
			t.Errorf("%d s on: again in %v, %v, and the deal is %s", when.later, again, err, g.phase(t))
		}
	}
	if h.well.fetched() != 0 {
		t.Error("the worker asks the beacon before its turn")
	}
	again, err := h.replica().Attend(t.Context(), g.later(t, drawTime).id)
	if err != nil || again != 0 || g.phase(t) != "COMPUTED" {
		t.Errorf("on its turn: again in %v, %v, and the deal is %s", again, err, g.phase(t))
	}
	g.published(t)
}

// EXPIRED: the round cannot be had, and no party is at fault. There is never a
// certificate, whoever asks.
func TestExpiry(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.well.set(h.well.Chain(), beacon.ErrUnavailable)
	for what, meet := range meets {
		t.Run(what, func(t *testing.T) {
			g := h.random(t, func(body map[string]any) { body["retention"] = "purge" }).revealed(t)
			g.later(t, roundOut+int64(window/time.Second)-60)
			meet(t, g)
			if g.phase(t) != "REVEALING" {
				t.Fatalf("in its last minute the deal is %s", g.phase(t))
			}
			meet(t, g.later(t, 61))
			if g.phase(t) != "EXPIRED" {
				t.Fatalf("after the window the deal is %s", g.phase(t))
			}
			refused(t, problem.NoCertificate, g.certificate(t, h.replica()))
			refused(t, problem.DealEnded, g.entropy(t, h.replica()))
			if n := g.text(t, "SELECT count(*)::text FROM certificates WHERE deal_id = $1", g.id); n != "0" {
				t.Errorf("%s certificates", n)
			}
			if n := g.text(t, "SELECT count(*)::text FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", g.id); n != "0" {
				t.Errorf("%s inputs are left of a purged deal", n)
			}
			if v := g.view(t, h.replica()); v["state"] != "EXPIRED" || v["void_flakers"] != nil || v["result"] != nil || v["reveals_closed_at"] == nil {
				t.Errorf("it shows as %v", v)
			}
		})
	}
}

// A deployment that was down for the whole window is no reason to expire: where
// the round can be had, it is drawn.
func TestALateDrawIsADraw(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.random(t, nil).revealed(t).later(t, roundOut+int64(window/time.Second)+60)
	if v := g.view(t, h.replica()); v["state"] != "COMPUTED" {
		t.Errorf("it shows as %v", v)
	}
	g.attended(t).published(t)
}

// A party that does not reveal makes a random deal VOID like any other.
func TestAMissingRevealIsNoExpiry(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.random(t, nil).committed(t)
	is(t, 200, g.reveal(t, h.replica(), 0))
	g.later(t, roundOut+int64(window/time.Second)+60)
	refused(t, problem.DealEnded, g.entropy(t, h.replica()))
	if c := g.attended(t).published(t); c["outcome"] != "VOID" || show(c["void_flakers"]) != "[1]" {
		t.Errorf("certified as %v", c)
	}
}

// Any number of draws at once, on several replicas, with the worker among them:
// one result and one certificate.
func TestDrawsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
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
			group.Go(func() { results[i] = show(is(t, 200, g.entropy(t, svc))["result"]) })
		}
		group.Go(func() {
			if _, err := h.replica().Attend(t.Context(), g.id); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
		for i, result := range results {
			if result != results[0] {
				t.Errorf("call %d drew %s and call 0 %s", i, result, results[0])
			}
		}
		g.attended(t).published(t)
		if h.log.size() != leaves+1 {
			t.Errorf("%d leaves for one certificate", h.log.size()-leaves)
		}
	}
}
