package escrow_test

import (
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const endedTotal = "fairpact_deals_ended_total"

func TestConcurrentLastReveals(t *testing.T) { // not parallel: this test counts the deals that end in the process
	h := newFixture(t)
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
						t.Errorf("a reveal is answered %+v, want REVEALING, or COMPUTED with the result %s", a, result)
					}
				}
				if computed == 0 {
					t.Errorf("the two last reveals are answered %+v, want the result in at least one", answers)
				}
				checkEndedOnce(t, g, before, leaves)
			}
		})
	}
}

func TestConcurrentCallsEndACompleteDealOnce(t *testing.T) {
	h := newFixture(t)
	another := openStore(t, h.sql.Config().ConnString())
	for range 5 {
		g := abandoned(t, h)
		before, leaves := counted(t, endedTotal, "COMPUTED"), h.log.size()
		issued := counted(t, "fairpact_certificates_issued_total", "")
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
				if answers[i], err = svc.StoredReveal(bounded(t), access); err != nil {
					t.Errorf("StoredReveal %d: %v, want no error", i, err)
				}
			})
		}
		group.Wait()
		for i, a := range answers {
			if a.State != deal.Computed || string(a.Result) != string(answers[0].Result) || a.Result == nil {
				t.Errorf("call %d is answered %+v, want COMPUTED with the result of call 0, %+v", i, a, answers[0])
			}
		}
		checkEndedOnce(t, g, before, leaves)
		if n := counted(t, "fairpact_certificates_issued_total", "") - issued; n != 1 {
			t.Errorf("the certificate is counted %v times as issued, want 1", n)
		}
	}
}

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
			t.Errorf("reveal of party %d: got error %v, want none", parties[i], a.err)
		}
		all[i] = a.value
	}
	return all
}

func checkEndedOnce(t *testing.T, g *game, ended float64, leaves int) {
	t.Helper()
	g.attended(t).published(t)
	if n := counted(t, endedTotal, "COMPUTED") - ended; n != 1 {
		t.Errorf("the deal ended %v times, want 1", n)
	}
	if g.log.size() != leaves+1 {
		t.Errorf("%d new leaves for one certificate, want 1", g.log.size()-leaves)
	}
}
