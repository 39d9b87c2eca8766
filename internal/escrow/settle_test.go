package escrow_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
)

// meets are all calls that meet a deal, each with a process that has never seen
// it. The answers differ; what they do to the deal first does not.
var meets = map[string]func(*testing.T, *game) answer{
	"view": func(t *testing.T, g *game) answer {
		svc := g.replica()
		return first(svc.View(t.Context(), g.access(t, svc, g.key, escrow.Read)))
	},
	"commit":      func(t *testing.T, g *game) answer { return g.commit(t, g.replica(), 1) },
	"reveal":      func(t *testing.T, g *game) answer { return g.reveal(t, g.replica(), 0) },
	"entropy":     func(t *testing.T, g *game) answer { return g.entropy(t, g.replica()) },
	"certificate": func(t *testing.T, g *game) answer { return g.certificate(t, g.replica()) },
	"inputs": func(t *testing.T, g *game) answer {
		svc := g.replica()
		return first(svc.Inputs(t.Context(), g.access(t, svc, g.tokens[0], escrow.ReadInputs)))
	},
	"cancel": func(t *testing.T, g *game) answer {
		svc := g.replica()
		return first(svc.Cancel(t.Context(), g.access(t, svc, g.key, escrow.CancelDeal), nil))
	},
	"a wrong reveal": func(t *testing.T, g *game) answer {
		svc := g.replica()
		return first(svc.Reveal(t.Context(), g.access(t, svc, g.tokens[0], escrow.Act), escrow.RevealRequest{Input: map[string]any{"x": int64(1)}}, nil))
	},
	"attend": func(t *testing.T, g *game) answer {
		_, err := g.replica().Attend(t.Context(), g.id)
		return answer{err: err}
	},
}

// died brings a deal to where its last commit or reveal is stored and the
// process died before anything followed from it.
func died(t *testing.T, h *house, reveal bool) *game {
	t.Helper()
	g := h.split(t, nil)
	if !reveal {
		for party := range g.tokens {
			if ok, err := h.store.Commit(t.Context(), g.id, party, g.commitment(t, party), nil); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		return g
	}
	g.committed(t)
	for party, input := range g.inputs {
		sealed := h.secret.SealInput(g.id, party, sealing.Input{Canonical: []byte(input), Salt: salt, SaltBytes: []byte(salt)})
		if ok, err := h.store.Reveal(t.Context(), g.id, party, sealed, nil); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	return g
}

// Complete but not advanced is a normal state: every call that meets it advances
// it first, a refusal on its way included.
func TestEveryCallAdvances(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for what, meet := range meets {
		t.Run("all have committed, "+what, func(t *testing.T) {
			g := died(t, h, false)
			a := meet(t, g)
			if g.phase(t) != "REVEALING" {
				t.Errorf("the deal is %s after an answer of %d, %v", g.phase(t), a.resp.Status, a.err)
			}
			want := map[string]problem.Code{
				"commit": problem.AlreadyCommitted, "entropy": problem.WrongAlgorithm, "certificate": problem.CertNotReady,
				"inputs": problem.InputsSealed, "cancel": problem.CannotCancel, "a wrong reveal": problem.CommitmentMismatch,
			}[what]
			if want == "" && a.err != nil || want != "" && !problem.Is(a.err, want) {
				t.Errorf("answered %d, %v; want %q", a.resp.Status, a.err, want)
			}
		})
		t.Run("all have revealed, "+what, func(t *testing.T) {
			g := died(t, h, true)
			a := meet(t, g)
			if g.phase(t) != "COMPUTED" {
				t.Errorf("the deal is %s after an answer of %d, %v", g.phase(t), a.resp.Status, a.err)
			}
			want := map[string]problem.Code{
				"commit": problem.DealEnded, "reveal": problem.DealEnded, "a wrong reveal": problem.DealEnded, "entropy": problem.WrongAlgorithm,
				"inputs": problem.InputsSealed, "cancel": problem.CannotCancel,
			}[what]
			if want == "" && a.err != nil || want != "" && !problem.Is(a.err, want) {
				t.Errorf("answered %d, %v; want %q", a.resp.Status, a.err, want)
			}
			if c := g.attended(t).published(t); c["outcome"] != "COMPUTED" {
				t.Errorf("certified as %v", c)
			}
		})
	}
}

// A deadline voids only where someone is missing: a deal that was complete in
// time goes its way however late it is met.
func TestALateProcessVoidsNoCompleteDeal(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for what, meet := range meets {
		t.Run(what, func(t *testing.T) {
			g := died(t, h, true).later(t, 10_000)
			meet(t, g)
			if g.phase(t) != "COMPUTED" {
				t.Errorf("all had revealed in time, and the deal is %s", g.phase(t))
			}
			g = died(t, h, false).later(t, 4000) // past the commit deadline only
			meet(t, g)
			if g.phase(t) != "REVEALING" {
				t.Errorf("all had committed in time, and the deal is %s", g.phase(t))
			}
			// Both deadlines are over: it advances, and then the reveals are missing.
			g = died(t, h, false).later(t, 10_000)
			meet(t, g)
			if c := g.attended(t).published(t); c["outcome"] != "VOID" || show(c["void_flakers"]) != "[0 1]" || c["timing"].(map[string]any)["commits_closed_at"] == nil {
				t.Errorf("nobody revealed in time: %v", c)
			}
		})
	}
}

// The deadline decides, not the worker: any call that meets an overdue deal voids
// it first, and names who failed.
func TestEveryCallVoidsAnOverdueDeal(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for what, meet := range meets {
		t.Run(what, func(t *testing.T) {
			for _, row := range []struct {
				name     string
				commits  []int
				reveals  []int
				later    int64
				flakers  string
				fromOpen bool
			}{
				{"nobody committed", nil, nil, 3600, "[0 1]", true},
				{"party 1 did not commit", []int{0}, nil, 3600, "[1]", true},
				{"party 0 did not reveal", []int{0, 1}, []int{1}, 7200, "[0]", false},
				{"nobody revealed", []int{0, 1}, nil, 9999, "[0 1]", false},
			} {
				g := h.split(t, nil)
				for _, party := range row.commits {
					is(t, 200, g.commit(t, h.replica(), party))
				}
				for _, party := range row.reveals {
					is(t, 200, g.reveal(t, h.replica(), party))
				}
				a := meet(t, g.later(t, row.later))
				if g.phase(t) != "VOID" {
					t.Fatalf("%s: the deal is %s after an answer of %d, %v", row.name, g.phase(t), a.resp.Status, a.err)
				}
				if what == "reveal" || what == "a wrong reveal" {
					late := problem.Is(a.err, problem.DeadlinePassed)
					if wasFlaker := row.flakers != "[1]"; late != wasFlaker {
						t.Errorf("%s: party 0 is answered %v", row.name, a.err)
					}
				}
				c := g.attended(t).published(t)
				if c["outcome"] != "VOID" || show(c["void_flakers"]) != row.flakers || c["result"] != nil || c["input_root"] != nil {
					t.Errorf("%s: %v", row.name, c)
				}
				timing := c["timing"].(map[string]any)
				if (timing["commits_closed_at"] == nil) != row.fromOpen || timing["reveals_closed_at"] != nil || timing["computed_at"] != nil {
					t.Errorf("%s: timing %v", row.name, timing)
				}
			}
		})
	}
}

// A rejection ends the deal at once; what was to come is refused. SPEC 3: the
// rejector is named.
func TestRejection(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, row := range []struct {
		first     int // who reveals first; party 1 rejects
		inputRoot bool
	}{{0, true}, {1, false}} {
		g := h.shapley(t, `{"accept":true}`, `{"accept":false}`).committed(t)
		svc := h.replica()
		body := is(t, 200, g.reveal(t, svc, row.first))
		if row.first == 0 {
			body = is(t, 200, g.reveal(t, svc, 1))
		}
		if body["state"] != "VOID" || body["result"] != nil || body["revealed"] != true {
			t.Errorf("the rejection is answered %v", body)
		}
		if row.first == 1 {
			refused(t, problem.DealEnded, g.reveal(t, svc, 0))
		}
		refused(t, problem.DealEnded, g.reveal(t, svc, 1))
		c := g.attended(t).published(t)
		if c["outcome"] != "VOID" || show(c["void_flakers"]) != "[1]" || (c["input_root"] != nil) != row.inputRoot {
			t.Errorf("certified as %v", c)
		}
		if timing := c["timing"].(map[string]any); (timing["reveals_closed_at"] != nil) != row.inputRoot {
			t.Errorf("timing %v", timing)
		}
	}
}

// The two readings of a salt: its own bytes, and the bytes that its hex spells.
// input_root is made of the reading that matched.
func TestInputRootUsesTheReadingThatMatched(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	roots := map[string]bool{}
	for _, saltBytes := range []string{salt, "\x01\x23\x45\x67\x89\xab\xcd\xef"} {
		g := h.split(t, nil)
		for party, input := range g.inputs {
			c, err := canon.ParseCommitment(canon.Commitment([]byte(input), []byte(saltBytes)))
			if err != nil {
				t.Fatal(err)
			}
			svc := h.replica()
			is(t, 200, first(svc.Commit(t.Context(), g.access(t, svc, g.tokens[party], escrow.Act), c, nil)))
		}
		for party := range g.inputs {
			is(t, 200, g.reveal(t, h.replica(), party))
		}
		c := g.attended(t).published(t)
		var leaves [][]byte
		for _, input := range g.inputs {
			leaves = append(leaves, []byte(input+saltBytes))
		}
		if c["input_root"] != rootOfTwo(leaves) {
			t.Errorf("input_root is %v, want %s", c["input_root"], rootOfTwo(leaves))
		}
		roots[show(c["input_root"])] = true
	}
	if len(roots) != 2 {
		t.Error("both readings give one root")
	}
}
