package escrow_test

import (
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
)

const endedTotal = "fairpact_deals_ended_total"

// Concurrent last reveals end the deal exactly once. The last one to be stored, and any
// stored in the same statement, is answered with the result.
func TestConcurrentLastReveals(t *testing.T) { // not parallel: it counts what ends in this process
	h := newHouse(t)
	another := openStore(t, h.sql.Config().ConnString())
	for name, replicas := range map[string][2]*escrow.Service{
		"in one process": {h.replica(), nil}, "in two processes": {h.replica(), h.replicaOn(another, escrow.Options{})},
	} {
		t.Run(name, func(t *testing.T) {
			if replicas[1] == nil {
				replicas[1] = replicas[0]
			}
			for range 10 {
				g := h.split(t, nil).committed(t)
				before, leaves := counted(t, endedTotal, "COMPUTED"), h.log.size()
				answers := revealAtOnce(t, g, replicas[:], 0, 1)
				result := string(g.view(t, h.replica()).Result)
				computed := 0
				for _, a := range answers {
					switch {
					case a.State == deal.Computed && string(a.Result) == result:
						computed++
					case a.State != deal.Revealing || a.Result != nil:
						t.Errorf("answered %+v, the result is %s", a, result)
					}
				}
				if computed == 0 {
					t.Error("neither of two last reveals has the result")
				}
				checkEndedOnce(t, g, before, leaves)
			}
		})
	}
}

// skippedSince counts connections that have run the statement of reveals since $1 and are
// idle again: the statement skipped the locked deal.
const skippedSince = `SELECT count(*)::text FROM pg_stat_activity
	WHERE datname = current_database() AND state = 'idle' AND query LIKE '-- Stores a group of reveals%' AND query_start > $1::timestamptz`

// Two last reveals that are stored in one statement are both answered COMPUTED with the
// same result.
func TestLastRevealsInOneStatement(t *testing.T) {
	h := newHouse(t)
	for try := 1; ; try++ {
		g := h.create(t, escrow.Declared{Algorithm: "split.v1", Params: map[string]any{"items": []any{"car"}}},
			[]string{`{"valuations":{"car":1}}`, `{"valuations":{"car":2}}`, `{"valuations":{"car":3}}`}, nil).committed(t)
		before, leaves := counted(t, endedTotal, "COMPUTED"), h.log.size()
		svc := h.replica()
		// While another transaction locks the deal, the first reveal waits for it. The
		// later ones wait together behind the first.
		holder := of(h.sql.Begin(t.Context())).ok(t)
		of(holder.Exec(t.Context(), "SELECT FROM deals WHERE deal_id = $1 FOR UPDATE", g.id)).ok(t)
		var first sync.WaitGroup
		first.Go(func() { revealAtOnce(t, g, []*escrow.Service{svc}, 2) })
		seen := func(query string, args ...any) {
			t.Helper()
			for end := time.Now().Add(time.Minute); g.text(t, query, args...) == "0"; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("not seen within a minute: %s", query)
				}
			}
		}
		seen("SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		last := make([]escrow.Revealed, 2)
		var group sync.WaitGroup
		for party := range last {
			mark := g.text(t, "SELECT clock_timestamp()::text")
			group.Go(func() { last[party] = revealAtOnce(t, g, []*escrow.Service{svc}, party)[0] })
			seen(skippedSince, mark)
		}
		check(t, holder.Rollback(t.Context()))
		first.Wait()
		group.Wait()
		checkEndedOnce(t, g, before, leaves)
		if last[0].State == deal.Computed && last[1].State == deal.Computed {
			if string(last[0].Result) != string(last[1].Result) || last[0].Result == nil {
				t.Errorf("the results differ: %s and %s", last[0].Result, last[1].Result)
			}
			return
		}
		if try == 20 {
			t.Fatalf("the two reveals never shared a statement in %d tries: %+v", try, last)
		}
	}
}

// Concurrent calls that reach a complete deal end it once.
func TestConcurrentCallsEndACompleteDealOnce(t *testing.T) {
	h := newHouse(t)
	another := openStore(t, h.sql.Config().ConnString())
	for range 5 {
		g := abandoned(t, h, true)
		before, leaves := counted(t, endedTotal, "COMPUTED"), h.log.size()
		one, other := h.replica(), h.replicaOn(another, escrow.Options{})
		answers := make([]escrow.Revealed, 12)
		var group sync.WaitGroup
		for i := range answers {
			svc := one
			if i%2 == 1 {
				svc = other
			}
			access := g.access(t, svc, g.tokens[i/2%2], escrow.AsParty)
			group.Go(func() {
				var err error
				if answers[i], err = svc.ReplayReveal(bounded(t), access); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i, a := range answers {
			if a.State != deal.Computed || string(a.Result) != string(answers[0].Result) || a.Result == nil {
				t.Errorf("call %d is answered %+v, call 0 %+v", i, a, answers[0])
			}
		}
		checkEndedOnce(t, g, before, leaves)
	}
}

// revealAtOnce reveals for the parties concurrently, at the replicas in turn.
func revealAtOnce(t *testing.T, g *game, replicas []*escrow.Service, parties ...int) []escrow.Revealed {
	t.Helper()
	answers := make([]answer[escrow.Revealed], len(parties))
	var group sync.WaitGroup
	for i, party := range parties {
		group.Go(func() { answers[i] = g.reveal(t, replicas[i%len(replicas)], party) })
	}
	group.Wait()
	all := make([]escrow.Revealed, len(parties))
	for i, a := range answers {
		if a.err != nil {
			t.Errorf("party %d: %v", parties[i], a.err)
		}
		all[i] = a.value
	}
	return all
}

// checkEndedOnce checks that one deal has ended and one leaf was added since.
func checkEndedOnce(t *testing.T, g *game, ended float64, leaves int) {
	t.Helper()
	g.attended(t).published(t)
	if n := counted(t, endedTotal, "COMPUTED") - ended; n != 1 {
		t.Errorf("the deal ended %v times", n)
	}
	if g.log.size() != leaves+1 {
		t.Errorf("%d leaves for one certificate", g.log.size()-leaves)
	}
}
