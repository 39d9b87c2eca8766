package escrow_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// meets are all calls that meet a deal, each with a process that has never seen
// it. The answers differ; what they do to the deal first does not.
var meets = map[string]func(*testing.T, *game) error{
	"view": func(t *testing.T, g *game) error {
		svc := g.replica()
		_, err := svc.View(t.Context(), g.access(t, svc, g.key, escrow.Read))
		return err
	},
	"commit":      func(t *testing.T, g *game) error { return g.commit(t, g.replica(), 1).err },
	"reveal":      func(t *testing.T, g *game) error { return g.reveal(t, g.replica(), 0).err },
	"entropy":     func(t *testing.T, g *game) error { return g.entropy(t, g.replica()).err },
	"certificate": func(t *testing.T, g *game) error { return g.certificate(t, g.replica()).err },
	"inputs": func(t *testing.T, g *game) error {
		svc := g.replica()
		_, err := svc.Inputs(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))
		return err
	},
	"cancel": func(t *testing.T, g *game) error {
		svc := g.replica()
		_, err := svc.Cancel(t.Context(), g.access(t, svc, g.key, escrow.CancelDeal), nil)
		return err
	},
	"a wrong reveal": func(t *testing.T, g *game) error {
		svc := g.replica()
		_, err := svc.Reveal(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty), escrow.Opening{Input: map[string]any{"x": int64(1)}}, nil)
		return err
	},
	"attend": func(t *testing.T, g *game) error {
		_, err := g.replica().Attend(t.Context(), g.id)
		return err
	},
}

// checkRefusal checks what a call that met a deal was answered; an empty code:
// success.
func checkRefusal(t *testing.T, err error, want problem.Code) {
	t.Helper()
	if want == "" && err != nil || want != "" && !problem.Is(err, want) {
		t.Errorf("answered %v, want %q", err, want)
	}
}

// abandoned brings a deal to where its last commit (as a process of an older
// release stores it) or its last reveal is stored, and the process died before
// anything followed from it.
func abandoned(t *testing.T, h *house, revealed bool) *game {
	t.Helper()
	g := h.split(t, nil)
	if !revealed {
		for party := range g.tokens {
			commitment := g.commitment(t, party)
			g.exec(t, "INSERT INTO commitments VALUES ($1, $2, $3, $4)", g.id, party, commitment[:], h.now(t))
		}
		return g
	}
	g.committed(t)
	for party := range g.tokens {
		if done := of(h.store.Reveal(t.Context(), g.stored(t, party))).ok(t); !done.Done {
			t.Fatalf("party %d is not revealed", party)
		}
	}
	return g
}

// stored is a party's reveal as it is stored.
func (g *game) stored(t *testing.T, party int) store.Act {
	t.Helper()
	in := sealing.Input{Canonical: []byte(g.inputs[party]), Salt: salt, SaltBytes: []byte(salt)}
	return store.Act{DealID: g.id, Party: party, Commitment: g.commitment(t, party), Sealed: g.secret.SealInput(g.id, party, in)}
}

// Complete but not advanced is a normal state: every call that meets it advances
// it first, one that is then refused included.
func TestEveryCallAdvances(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for name, meet := range meets {
		t.Run("all have committed, "+name, func(t *testing.T) {
			g := abandoned(t, h, false)
			err := meet(t, g)
			if g.phase(t) != "REVEALING" {
				t.Errorf("the deal is %s after %v", g.phase(t), err)
			}
			checkRefusal(t, err, map[string]problem.Code{
				"commit": problem.AlreadyCommitted, "entropy": problem.WrongAlgorithm, "certificate": problem.CertNotReady,
				"inputs": problem.InputsSealed, "cancel": problem.CannotCancel, "a wrong reveal": problem.CommitmentMismatch,
			}[name])
		})
		t.Run("all have revealed, "+name, func(t *testing.T) {
			g := abandoned(t, h, true)
			err := meet(t, g)
			if g.phase(t) != "COMPUTED" {
				t.Errorf("the deal is %s after %v", g.phase(t), err)
			}
			checkRefusal(t, err, map[string]problem.Code{
				"commit": problem.DealEnded, "reveal": problem.DealEnded, "a wrong reveal": problem.DealEnded, "entropy": problem.WrongAlgorithm,
				"inputs": problem.InputsSealed, "cancel": problem.CannotCancel,
			}[name])
			if c := g.attended(t).published(t); c.Outcome != "COMPUTED" {
				t.Errorf("certified as %s", show(c))
			}
		})
	}
}

// A process of an older release closes the reveals of a random deal after the
// last one: where it died before, the next call does.
func TestRevealsOfARandomDealAreClosed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.random(t, nil).committed(t)
	for party := range g.tokens {
		g.exec(t, "INSERT INTO reveals VALUES ($1, $2, $3, $4)", g.id, party, g.stored(t, party).Sealed, h.now(t))
	}
	if v := g.view(t, h.replica()); v.State != deal.Revealing || v.RevealsClosedAt == nil || *v.RevealsClosedAt != v.LastReveal {
		t.Errorf("it shows as %s", show(v))
	}
	if drawn := g.later(t, roundOut).entropy(t, h.replica()).ok(t); drawn.State != deal.Computed {
		t.Errorf("drawn: %+v", drawn)
	}
}

// A deadline voids only where someone is missing: a deal that was complete in
// time goes its way however late it is met.
func TestALateProcessVoidsNoCompleteDeal(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for name, meet := range meets {
		t.Run(name, func(t *testing.T) {
			g := abandoned(t, h, true).later(t, 10_000)
			_ = meet(t, g)
			if g.phase(t) != "COMPUTED" {
				t.Errorf("all had revealed in time, and the deal is %s", g.phase(t))
			}
			g = abandoned(t, h, false).later(t, 4000) // past the commit deadline only
			_ = meet(t, g)
			if g.phase(t) != "REVEALING" {
				t.Errorf("all had committed in time, and the deal is %s", g.phase(t))
			}
			// Both deadlines are over: it advances, and then the reveals are missing.
			g = abandoned(t, h, false).later(t, 10_000)
			_ = meet(t, g)
			if c := g.attended(t).published(t); c.Outcome != "VOID" || show(c.VoidFlakers) != "[0,1]" || c.Timing.CommitsClosedAt == nil {
				t.Errorf("nobody revealed in time: %s", show(c))
			}
		})
	}
}

// The deadline decides, not the worker: any call that meets an overdue deal voids
// it first, and names who failed.
func TestEveryCallVoidsAnOverdueDeal(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for name, meet := range meets {
		t.Run(name, func(t *testing.T) {
			for _, row := range []struct {
				name     string
				commits  []int
				reveals  []int
				later    int64
				flakers  string
				fromOpen bool
			}{
				{"nobody committed", nil, nil, 3600, "[0,1]", true},
				{"party 1 did not commit", []int{0}, nil, 3600, "[1]", true},
				{"party 0 did not reveal", []int{0, 1}, []int{1}, 7200, "[0]", false},
				{"nobody revealed", []int{0, 1}, nil, 9999, "[0,1]", false},
			} {
				g := h.split(t, nil)
				for _, party := range row.commits {
					g.commit(t, h.replica(), party).ok(t)
				}
				for _, party := range row.reveals {
					g.reveal(t, h.replica(), party).ok(t)
				}
				err := meet(t, g.later(t, row.later))
				if g.phase(t) != "VOID" {
					t.Fatalf("%s: the deal is %s after %v", row.name, g.phase(t), err)
				}
				if name == "reveal" || name == "a wrong reveal" {
					if wasFlaker := row.flakers != "[1]"; problem.Is(err, problem.DeadlinePassed) != wasFlaker {
						t.Errorf("%s: party 0 is answered %v", row.name, err)
					}
				}
				c := g.attended(t).published(t)
				if c.Outcome != "VOID" || show(c.VoidFlakers) != row.flakers || c.Result != nil && string(c.Result) != "null" || c.InputRoot != nil {
					t.Errorf("%s: %s", row.name, show(c))
				}
				if (c.Timing.CommitsClosedAt == nil) != row.fromOpen || c.Timing.RevealsClosedAt != nil || c.Timing.ComputedAt != nil {
					t.Errorf("%s: timing %s", row.name, show(c.Timing))
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
	for name, row := range map[string]struct {
		first     int // who reveals first; party 1 rejects
		inputRoot bool
	}{"after all others": {0, true}, "before the others": {1, false}} {
		t.Run(name, func(t *testing.T) {
			g := h.shapley(t, `{"accept":true}`, `{"accept":false}`).committed(t)
			svc := h.replica()
			rejection := g.reveal(t, svc, row.first).ok(t)
			if row.first == 0 {
				rejection = g.reveal(t, svc, 1).ok(t)
			}
			if rejection.State != deal.Void || rejection.Result != nil || !rejection.Revealed {
				t.Errorf("the rejection is answered %+v", rejection)
			}
			if row.first == 1 {
				g.reveal(t, svc, 0).refused(t, problem.DealEnded)
			}
			g.reveal(t, svc, 1).refused(t, problem.DealEnded)
			c := g.attended(t).published(t)
			if c.Outcome != "VOID" || show(c.VoidFlakers) != "[1]" || (c.InputRoot != nil) != row.inputRoot || (c.Timing.RevealsClosedAt != nil) != row.inputRoot {
				t.Errorf("certified as %s", show(c))
			}
		})
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
		var leaves [][]byte
		for party, input := range g.inputs {
			commitment := of(canon.ParseCommitment(canon.Commitment([]byte(input), []byte(saltBytes)))).ok(t)
			svc := h.replica()
			of(svc.Commit(t.Context(), g.access(t, svc, g.tokens[party], escrow.AsParty), escrow.Commitment{Hash: commitment}, nil)).ok(t)
			leaves = append(leaves, []byte(input+saltBytes))
		}
		for party := range g.inputs {
			g.reveal(t, h.replica(), party).ok(t)
		}
		c := g.attended(t).published(t)
		if *c.InputRoot != rootOfTwo(leaves) {
			t.Errorf("input_root is %s, want %s", *c.InputRoot, rootOfTwo(leaves))
		}
		roots[*c.InputRoot] = true
	}
	if len(roots) != 2 {
		t.Error("both readings have one root")
	}
}

// A replay whose answer was lost is rendered from the deal as it stands, and the
// deadline decides there as anywhere.
func TestALostAnswerIsRenderedFromTheDealAsItStands(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	checkCommitted := func(name string, g *game, state deal.State) {
		t.Helper()
		svc := h.replica()
		got := of(svc.ReplayCommit(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))).ok(t)
		if got != (escrow.Committed{DealID: g.id, State: state, Committed: true}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	checkRevealed := func(name string, g *game, state deal.State) {
		t.Helper()
		svc := h.replica()
		got := of(svc.ReplayReveal(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))).ok(t)
		if got.State != state || !got.Revealed || got.Party != 0 || (got.Result != nil) != (state == deal.Computed) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	g := h.split(t, nil)
	g.commit(t, h.replica(), 0).ok(t)
	checkCommitted("one of two has committed", g, deal.Committing)
	checkCommitted("the other one missed the deadline", g.later(t, 3600), deal.Void)

	g = h.split(t, nil).committed(t)
	checkCommitted("both have committed", g, deal.Revealing)
	g.reveal(t, h.replica(), 0).ok(t)
	checkRevealed("one of two has revealed", g, deal.Revealing)
	checkRevealed("the other one missed the deadline", g.later(t, 7200), deal.Void)
	checkCommitted("the commit of a VOID deal", g, deal.Void)

	g = h.split(t, nil).revealed(t)
	checkRevealed("both have revealed", g, deal.Computed)
	checkCommitted("the commit of a COMPUTED deal", g, deal.Computed)
}

// An open deal hands its inputs to its parties once it is COMPUTED.
func TestInputsOfAnOpenDeal(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := h.split(t, func(d *escrow.Declared) { d.Mode = "open" }).committed(t)
	inputs := func() answer[[]escrow.OpenInput] {
		svc := h.replica()
		return of(svc.Inputs(t.Context(), g.access(t, svc, g.tokens[1], escrow.AsParty)))
	}
	g.reveal(t, h.replica(), 1).ok(t)
	inputs().refused(t, problem.InputsNotReady)
	g.reveal(t, h.replica(), 0).ok(t)
	same(t, inputs().ok(t), []escrow.OpenInput{{Input: []byte(g.inputs[0]), Salt: salt}, {Input: []byte(g.inputs[1]), Salt: salt}})
}
