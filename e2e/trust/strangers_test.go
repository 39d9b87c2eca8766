package trust

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// The independent verifier checks the signature, and the proof against the signed tree head. With
// the parties' inputs, it also checks the commitments, the input root and the result.
func TestIndependentVerifierAcceptsEachKind(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	var all []*e2e.UnfinishedDeal
	for name, play := range map[string]e2e.Scenario{
		"split of 2":             e2e.LastReveal,
		"split of 3":             whole(split(3, 4), valuations(3, 4)),
		"split of 16":            whole(split(16, 40), valuations(16, 40)),
		"nobody values anything": whole(split(2, 2), []e2e.Body{{"valuations": e2e.Body{}}, {"valuations": e2e.Body{"item 0": 0}}}),
		"open":                   whole(e2e.Retained(split(2, 3), "open", "standard"), valuations(2, 3)),
		"purge":                  whole(e2e.Retained(split(2, 3), "sealed", "purge"), valuations(2, 3)),
		"open and purge":         whole(e2e.Retained(split(2, 3), "open", "purge"), valuations(2, 3)),
		"draw of 3":              e2e.Draw(past),
		"draw of 40":             whole(e2e.RandomBody(40, past, time.Hour, 2*time.Hour), nonces(40)),
		"purged draw":            whole(e2e.Retained(e2e.RandomBody(2, past, time.Hour, 2*time.Hour), "sealed", "purge"), nonces(2)),
		"shapley of 2":           whole(e2e.ShapleyBody(time.Hour, 2*time.Hour), accepts(2)),
		"shapley of 8":           whole(shapley(8), accepts(8)),
		"rejection":              e2e.Rejection,
		"rejection by the first": whole(shapley(3), []e2e.Body{{"accept": false}}),
		"missed commit":          e2e.MissedCommit,
		"missed reveal":          e2e.MissedReveal,
	} {
		t.Run(name, func(t *testing.T) {
			x := e2e.Played(t, c.In(t), play)
			if x.Last.Token != "" && !x.EndsByDeadline {
				if a, err := x.Call(c); err != nil || a.Status != 200 {
					t.Fatalf("the last call: error %v, %d %s, want 200", err, a.Status, a.Body)
				}
			}
			x.Deal.C = c
			all = append(all, x)
		})
	}
	// The deadlines that parties miss have passed by now, or pass during this loop.
	for _, x := range all {
		text := x.Deal.Certified(e2e.DefaultTimeout)
		x.Recomputed(t, c, text)
		if v := x.Deal.View(); v.State != x.Outcome || !slices.Equal(v.VoidFlakers, x.Flakers) || !c.Verify(*v.CertificateID).Valid {
			t.Errorf("the view is %+v, want %s with flakers %v", v, x.Outcome, x.Flakers)
		}
	}
}

// whole returns a scenario in which all parties commit. The parties with an input reveal it. If
// there are fewer inputs than parties, the last input must be a rejection.
func whole(b e2e.Body, inputs []e2e.Body) e2e.Scenario {
	return func(c *e2e.Client, _ time.Duration) *e2e.UnfinishedDeal {
		parties, reveals := len(b["party_labels"].([]string)), len(inputs)
		known := slices.Clone(inputs)
		for len(known) < parties {
			known = append(known, inputs[0])
		}
		x := e2e.Open(c, b, parties, reveals, known...)
		if reveals < parties {
			x.Outcome, x.Flakers = "VOID", []int{reveals - 1}
		}
		if b["algorithm"] == "random.v1" {
			x.SetLastCall("/entropy", 0, nil)
		}
		return x
	}
}

func seats(parties int) (all []string) {
	for i := range parties {
		all = append(all, fmt.Sprintf("party %02d é", i))
	}
	return all
}

func split(parties, items int) e2e.Body {
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	var names []string
	for i := range items {
		names = append(names, fmt.Sprintf("item %d", i))
	}
	b["party_labels"], b["algorithm_params"] = seats(parties), e2e.Body{"items": names}
	return b
}

func valuations(parties, items int) (all []e2e.Body) {
	for p := range parties {
		values := e2e.Body{}
		for i := range items {
			values[fmt.Sprintf("item %d", i)] = (p*7+i*13)%29 + 1<<(p%3*20)
		}
		all = append(all, e2e.Body{"valuations": values})
	}
	return all
}

func nonces(parties int) (all []e2e.Body) {
	for p := range parties {
		all = append(all, e2e.Body{"nonce": strings.Repeat(fmt.Sprintf("%X", p), p%5)})
	}
	return all
}

func accepts(parties int) []e2e.Body { return slices.Repeat([]e2e.Body{{"accept": true}}, parties) }

func shapley(parties int) e2e.Body {
	b := e2e.ShapleyBody(time.Hour, 2*time.Hour)
	names, values := seats(parties), e2e.Body{}
	for set := 1; set < 1<<parties; set++ {
		var members []string
		for i, name := range names {
			if set>>i&1 == 1 {
				members = append(members, name)
			}
		}
		values[strings.Join(members, ",")] = len(members)*len(members)*10 + set&1*7
	}
	b["party_labels"], b["algorithm_params"] = names, e2e.Body{"coalition_values": values}
	return b
}

// The Python tests require that the verifier rejects every changed certificate, proof, tree head
// and bundle, and that it computes the published vectors.
func TestVerifierInPython(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("python3", "-B", "-m", "unittest", "discover", "-s", e2e.Repo("e2e/verifier")).CombinedOutput(); err != nil {
		t.Errorf("the Python tests of e2e/verifier: %v\n%s", err, out)
	}
}
