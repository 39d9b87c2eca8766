package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every kind of certificate convinces somebody who shares no code with the
// project: signature, proof against the signed head, and, by what the parties
// reveal to that somebody, the commitments, the input root and the result.
func TestStrangersAreConvinced(t *testing.T) {
	t.Parallel()
	c := newClient(t, baseURL(t))
	past := beaconChain(t).RoundAt(time.Now().Unix()) - 10
	var all []*cut
	for name, play := range map[string]scenario{
		"split of 2":             lastReveal,
		"split of 3":             whole(split(3, 4), valuations(3, 4)),
		"split of 16":            whole(split(16, 40), valuations(16, 40)),
		"nobody values anything": whole(split(2, 2), []body{{"valuations": body{}}, {"valuations": body{"item 0": 0}}}),
		"open":                   whole(retained(split(2, 3), "open", "standard"), valuations(2, 3)),
		"purge":                  whole(retained(split(2, 3), "sealed", "purge"), valuations(2, 3)),
		"open and purge":         whole(retained(split(2, 3), "open", "purge"), valuations(2, 3)),
		"draw of 3":              draw(past),
		"draw of 40":             whole(randomBody(40, past, time.Hour, 2*time.Hour), nonces(40)),
		"purged draw":            whole(retained(randomBody(2, past, time.Hour, 2*time.Hour), "sealed", "purge"), nonces(2)),
		"shapley of 2":           whole(shapleyBody(time.Hour, 2*time.Hour), accepts(2)),
		"shapley of 8":           whole(shapley(8), accepts(8)),
		"rejection":              rejection,
		"rejection by the first": whole(shapley(3), []body{{"accept": false}}),
		"missed commit":          missedCommit,
		"missed reveal":          missedReveal,
	} {
		t.Run(name, func(t *testing.T) {
			here := *c
			here.t = t
			x := played(t, &here, play)
			if x.last.token != "" && !x.clock {
				if a, err := x.call(c); err != nil || a.status != 200 {
					t.Fatalf("the last call: %v, %d %s", err, a.status, a.body)
				}
			}
			x.deal.c = c
			all = append(all, x)
		})
	}
	// The deadlines come while the others are played.
	for _, x := range all {
		text := x.deal.certified(patience)
		x.recomputed(t, c, text)
		if v := x.deal.view(); v.State != x.outcome || !slices.Equal(v.VoidFlakers, x.flakers) || !c.verify(*v.CertificateID).Valid {
			t.Errorf("view: %+v, want %s %v", v, x.outcome, x.flakers)
		}
	}
}

// whole plays a deal to which all commit. All reveal, or as many as there are
// inputs, of whom the last one then rejects.
func whole(b body, inputs []body) scenario {
	return func(c *client, _ time.Duration) *cut {
		parties, reveals := len(b["party_labels"].([]string)), len(inputs)
		known := slices.Clone(inputs)
		for len(known) < parties {
			known = append(known, inputs[0])
		}
		x := open(c, b, parties, reveals, known...)
		if reveals < parties {
			x.outcome, x.flakers = "VOID", []int{reveals - 1}
		}
		if b["algorithm"] == "random.v1" {
			x.ends("/entropy", 0, nil)
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

func split(parties, items int) body {
	b := splitBody(time.Hour, 2*time.Hour)
	var names []string
	for i := range items {
		names = append(names, fmt.Sprintf("item %d", i))
	}
	b["party_labels"], b["algorithm_params"] = seats(parties), body{"items": names}
	return b
}

func valuations(parties, items int) (all []body) {
	for p := range parties {
		values := body{}
		for i := range items {
			values[fmt.Sprintf("item %d", i)] = (p*7+i*13)%29 + 1<<(p%3*20)
		}
		all = append(all, body{"valuations": values})
	}
	return all
}

func nonces(parties int) (all []body) {
	for p := range parties {
		all = append(all, body{"nonce": strings.Repeat(fmt.Sprintf("%X", p), p%5)})
	}
	return all
}

func accepts(parties int) []body { return slices.Repeat([]body{{"accept": true}}, parties) }

// shapley is a game in which a coalition is worth the square of its size, and
// more with the first party in it.
func shapley(parties int) body {
	b := shapleyBody(time.Hour, 2*time.Hour)
	names, values := seats(parties), body{}
	for set := 1; set < 1<<parties; set++ {
		var members []string
		for i, name := range names {
			if set>>i&1 == 1 {
				members = append(members, name)
			}
		}
		values[strings.Join(members, ",")] = len(members)*len(members)*10 + set&1*7
	}
	b["party_labels"], b["algorithm_params"] = names, body{"coalition_values": values}
	return b
}

// The programs that check the project without its code are themselves checked,
// and so are the published vectors by one of them.
func TestPythonPrograms(t *testing.T) {
	for _, args := range [][]string{
		{"-B", "-m", "unittest", "discover", "-s", "verifier"},
		{"-B", "../internal/algorithm/testdata/recompute.py"},
	} {
		t.Run(args[len(args)-1], func(t *testing.T) {
			t.Parallel()
			if out, err := exec.Command("python3", args...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
