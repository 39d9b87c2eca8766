package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// target is a call that a mutated body is sent to; renew makes another, where
// one was valid after all and was taken.
type target struct {
	deal              *e2e.Dealt
	path, token, body string
	renew             func() target
}

// Whatever is made of a valid body, the service refuses it and nothing changes,
// or takes it because it is valid: it never fails.
func TestMutatedBodies(t *testing.T) {
	const rounds, seed = 250, 7
	c, w := surfaceClient(t), e2e.Database(t, e2e.Shared(t))
	key := c.Key()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	creations := []e2e.Body{
		e2e.SplitBody(time.Hour, 2*time.Hour), e2e.ShapleyBody(time.Hour, 2*time.Hour), e2e.RandomBody(3, e2e.FarRound(t), time.Hour, 2*time.Hour),
		e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "open", "purge"),
	}
	idle := func(b e2e.Body) *e2e.Dealt { return c.CreateWith(key, b) }
	var commit, cancel func() target
	commit = func() target {
		d := idle(e2e.SplitBody(time.Hour, 2*time.Hour))
		return target{d, d.Path("/commit"), d.Tokens[0], text(e2e.Seal(t, e2e.AnnsValues).Act("commit")), commit}
	}
	cancel = func() target {
		d := idle(e2e.SplitBody(time.Hour, 2*time.Hour))
		return target{d, d.Path("/cancel"), key, `{"reason":["none",{"of":"yours"}]}`, cancel}
	}
	reveal := func(b e2e.Body, mine, other e2e.Body) func() target {
		var again func() target
		again = func() target {
			s := e2e.Seal(t, mine)
			d := c.Committed(b, s.Commitment, e2e.Seal(t, other))
			return target{d, d.Path("/reveal"), d.Tokens[0], text(s.Act("reveal")), again}
		}
		return again
	}
	targets := map[string]func() target{
		"keys":   func() target { return target{path: "/v1/keys", body: `{"note":{"of":[1,"x"]}}`} },
		"commit": commit,
		"cancel": cancel,
		"split":  reveal(creations[0], e2e.AnnsValues, e2e.BobsValues),
		"accept": reveal(creations[1], e2e.Body{"accept": true}, e2e.Body{"accept": true}),
		"nonce":  reveal(e2e.RandomBody(2, e2e.FarRound(t), time.Hour, 2*time.Hour), e2e.Body{"nonce": "00ff"}, e2e.Body{"nonce": ""}),
		"entropy": func() target {
			d := idle(e2e.SplitBody(time.Hour, 2*time.Hour))
			return target{deal: d, path: d.Path("/entropy"), token: key, body: `{"value":"00"}`}
		},
	}
	for i, b := range creations {
		targets[fmt.Sprint("create ", i)] = func() target { return target{path: "/v1/deals", token: key, body: text(b)} }
	}
	for name, first := range targets {
		t.Run(name, func(t *testing.T) {
			c, m := surfaceClient(t), mutator{rand.New(rand.NewPCG(seed, uint64(len(name))))}
			count := func() int64 {
				return w.Rows()
			}
			at := first()
			taken, refused := 0, 0
			before := count()
			for range rounds {
				sent := m.mutated(at.body)
				var view string
				if at.deal != nil {
					view = string(c.Want(200, "GET", at.deal.Path(""), at.deal.Key, nil).Body)
				}
				a := c.Do("POST", at.path, at.token, sent)
				switch {
				case a.Status >= 500 || a.Status < 200 || a.Status >= 300 && a.Status < 400:
					t.Fatalf("%q: %d %s", sent, a.Status, a.Body)
				case a.Status < 300:
					taken++
					if at.renew != nil {
						at = at.renew()
					}
					before = count()
				default:
					refused++
					if at.deal != nil && view != string(c.Want(200, "GET", at.deal.Path(""), at.deal.Key, nil).Body) {
						t.Fatalf("%q was refused with %s and changed the deal", sent, a.Body)
					}
					if n := count(); n != before {
						t.Fatalf("%q was refused with %s and left %d rows", sent, a.Body, n-before)
					}
				}
			}
			t.Logf("%d refused, %d taken", refused, taken)
			if refused < rounds/3 {
				t.Errorf("of %d mutated bodies only %d were refused: they are too tame", rounds, refused)
			}
		})
	}
}
