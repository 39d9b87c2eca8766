package escrow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// meets maps the name of each call on a deal to a function that makes the call on a new replica.
// The caches of a new replica are empty, so the call itself must take the due steps.
var meets = map[string]func(*testing.T, *game) error{
	"view": func(t *testing.T, g *game) error {
		svc := g.replica()
		return of(svc.View(t.Context(), g.access(t, svc, g.key, escrow.Read))).err
	},
	"commit":      func(t *testing.T, g *game) error { return g.commit(t, g.replica(), 1).err },
	"reveal":      func(t *testing.T, g *game) error { return g.reveal(t, g.replica(), 0).err },
	"entropy":     func(t *testing.T, g *game) error { return g.entropy(t, g.replica()).err },
	"certificate": func(t *testing.T, g *game) error { return g.certificate(t, g.replica()).err },
	"inputs": func(t *testing.T, g *game) error {
		svc := g.replica()
		return of(svc.Inputs(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))).err
	},
	"cancel": func(t *testing.T, g *game) error {
		svc := g.replica()
		return of(svc.Cancel(t.Context(), g.access(t, svc, g.key, escrow.CancelDeal), nil)).err
	},
	"a wrong reveal": func(t *testing.T, g *game) error {
		svc := g.replica()
		return of(svc.Reveal(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty), escrow.Opening{Input: map[string]any{"x": int64(1)}}, nil)).err
	},
	"process": func(t *testing.T, g *game) error { return of(g.replica().ProcessDeal(t.Context(), g.id)).err },
}

// abandoned returns a deal in which all parties have revealed, as if the process had crashed before
// it ended the deal.
func abandoned(t *testing.T, h *fixture) *game {
	t.Helper()
	g := h.split(t, nil).committed(t)
	for party := range g.tokens {
		if done := of(h.store.Reveal(t.Context(), g.stored(t, party))).ok(t); !done.Done {
			t.Fatalf("store.Reveal of party %d: got %+v, want it done", party, done)
		}
	}
	return g
}

func (g *game) stored(t *testing.T, party int) store.Act {
	t.Helper()
	in := sealing.Input{Canonical: []byte(g.inputs[party]), Salt: salt, SaltBytes: []byte(salt)}
	return store.Act{DealID: g.id, Party: party, Commitment: g.commitment(t, party), Sealed: g.secret.SealInput(g.id, party, in)}
}

// Even a call that is refused takes the due steps. A deadline makes a deal VOID only if a
// party is missing.
func TestEveryCallTakesTheStepsThatAreDue(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	played := func(commits, reveals []int) *game {
		g := h.split(t, nil)
		for _, party := range commits {
			g.commit(t, h.replica(), party).ok(t)
		}
		for _, party := range reveals {
			g.reveal(t, h.replica(), party).ok(t)
		}
		return g
	}
	both := []int{0, 1}
	for _, row := range []struct {
		name    string
		game    func() *game
		later   int64
		phase   string
		flakers string
		reveal  problem.Code // the error of any reveal by party 0; "": not checked
	}{
		{"all have revealed", func() *game { return abandoned(t, h) }, 0, "COMPUTED", "", problem.DealEnded},
		{"all had revealed in time", func() *game { return abandoned(t, h) }, 10_000, "COMPUTED", "", problem.DealEnded},
		{"nobody committed", func() *game { return played(nil, nil) }, 3600, "VOID", "[0,1]", problem.DeadlinePassed},
		{"party 1 did not commit", func() *game { return played([]int{0}, nil) }, 3600, "VOID", "[1]", problem.DealEnded},
		{"party 0 did not reveal", func() *game { return played(both, []int{1}) }, 7200, "VOID", "[0]", problem.DeadlinePassed},
		{"nobody revealed", func() *game { return played(both, nil) }, 9999, "VOID", "[0,1]", problem.DeadlinePassed},
	} {
		for name, meet := range meets {
			t.Run(row.name+", "+name, func(t *testing.T) {
				g := row.game().later(t, row.later)
				err := meet(t, g)
				if phase := g.phase(t); phase != row.phase {
					t.Fatalf("after the call (%v) the deal is %s, want %s", err, phase, row.phase)
				}
				if (name == "reveal" || name == "a wrong reveal") && row.reveal != "" && !problem.Is(err, row.reveal) {
					t.Errorf("%s: got error %v, want %s", name, err, row.reveal)
				}
				// A call fails only if the algorithm or the deal's new phase forbids it, never
				// because a step was due.
				want := map[string]problem.Code{"entropy": problem.WrongAlgorithm, "cancel": problem.CannotCancel}[name]
				if row.phase == "REVEALING" && name == "certificate" {
					want = problem.CertNotReady
				}
				switch name {
				case "view", "process", "entropy", "cancel", "certificate":
					if want == "" && err != nil || want != "" && !problem.Is(err, want) {
						t.Errorf("%s in a deal that becomes %s: got error %v, want %q", name, row.phase, err, want)
					}
				}
				if row.phase == "REVEALING" {
					return
				}
				c := g.attended(t).published(t)
				committed, computed := len(row.flakers) == 0 || c.Parties[0].Commitment != nil && c.Parties[1].Commitment != nil, row.phase == "COMPUTED"
				if c.Outcome != row.phase || !computed && show(c.VoidFlakers) != row.flakers || (c.InputRoot != nil) != computed || (string(c.Result) != "null") != computed {
					t.Errorf("the certificate is %s, want outcome %s, flakers %q, input_root and result only if COMPUTED", show(c), row.phase, row.flakers)
				}
				if (c.Timing.CommitsClosedAt != nil) != committed || (c.Timing.RevealsClosedAt != nil) != computed || (c.Timing.ComputedAt != nil) != computed {
					t.Errorf("timing %s: want commits_closed_at: %v, reveals_closed_at and computed_at: %v", show(c.Timing), committed, computed)
				}
			})
		}
	}
}

func TestVoidWithoutRevealsClaimsNothingAboutInputs(t *testing.T) {
	t.Parallel()
	g := newFixture(t).split(t, purge).committed(t).later(t, 7200)
	got := g.attended(t).published(t).Properties
	if len(got) != 3 || got[0] != certificate.MissedReveal || !strings.HasPrefix(got[1], "declaration-sha256:") || got[2] != "logged" {
		t.Errorf("the properties are %v, want %s, declaration-sha256 and logged", got, certificate.MissedReveal)
	}
}

func TestProcessDealSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	processDeal := func(g *game, at func(now int64) int64) {
		t.Helper()
		before := h.now(t)
		again := of(h.replica().ProcessDeal(t.Context(), g.id)).ok(t)
		after := h.now(t)
		if least, most := at(before)-after-1, at(after)-before; again <= time.Duration(least)*time.Second || again > time.Duration(most)*time.Second {
			t.Errorf("ProcessDeal of a %s deal = %v, want more than %d s and at most %d s", g.phase(t), again, least, most)
		}
	}
	column := func(g *game, name string, plus int64) func(int64) int64 {
		var at int64
		check(t, h.sql.QueryRow(t.Context(), "SELECT "+name+" FROM deals WHERE deal_id = $1", g.id).Scan(&at))
		return func(int64) int64 { return at + plus }
	}
	open := h.split(t, nil).later(t, 3000)
	processDeal(open, column(open, "commit_deadline", 0))
	processDeal(h.split(t, nil).later(t, -86400), func(now int64) int64 { return now + 3600 })
	// A party can draw this deal, but deadline-worker waits for deal.DrawDelay.
	drawn := h.random(t, nil).revealed(t).later(t, roundOut)
	processDeal(drawn, column(drawn, "round_time", deal.DrawDelay))
	if drawn.phase(t) != "REVEALING" || h.beacon.fetched() != 0 {
		t.Errorf("before the worker's draw the deal is %s after %d fetches, want REVEALING after 0", drawn.phase(t), h.beacon.fetched())
	}
	if again := of(h.replica().ProcessDeal(t.Context(), h.split(t, nil).revealed(t).id)).ok(t); again != 0 {
		t.Errorf("ProcessDeal of an ended deal = %v, want 0", again)
	}
}

// If a repeated call has no stored answer, StoredCommit and StoredReveal take the deal's due steps
// and return the deal's present state.
func TestReplayShowsTheDealAsItStands(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	committed := func(name string, g *game, state deal.State) {
		t.Helper()
		svc := h.replica()
		got := of(svc.StoredCommit(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))).ok(t)
		if got != (escrow.Committed{DealID: g.id, State: state, Committed: true}) {
			t.Errorf("%s: StoredCommit = %+v, want state %s", name, got, state)
		}
	}
	revealed := func(name string, g *game, state deal.State) {
		t.Helper()
		svc := h.replica()
		got := of(svc.StoredReveal(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))).ok(t)
		if got.State != state || !got.Revealed || got.Party != 0 || (got.Result != nil) != (state == deal.Computed) {
			t.Errorf("%s: StoredReveal = %+v, want state %s, with a result only if COMPUTED", name, got, state)
		}
	}
	g := h.split(t, nil)
	g.commit(t, h.replica(), 0).ok(t)
	committed("one of two has committed", g, deal.Committing)
	committed("the other one missed the deadline", g.later(t, 3600), deal.Void)

	g = h.split(t, nil).committed(t)
	committed("both have committed", g, deal.Revealing)
	g.reveal(t, h.replica(), 0).ok(t)
	revealed("one of two has revealed", g, deal.Revealing)
	revealed("the other one missed the deadline", g.later(t, 7200), deal.Void)

	g = h.split(t, nil).revealed(t)
	revealed("both have revealed", g, deal.Computed)
	committed("the commit of a COMPUTED deal", g, deal.Computed)
}
