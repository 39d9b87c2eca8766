package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// target is a call that a mutated body is sent to; renew makes another, where
// one was valid after all and was taken.
type target struct {
	deal              *dealt
	path, token, body string
	renew             func() target
}

// Whatever is made of a valid body, the service refuses it and nothing changes,
// or takes it because it is valid: it never fails.
func TestMutatedBodies(t *testing.T) {
	const rounds, seed = 250, 7
	c, w := surfaceClient(t), database(t, shared(t))
	key := c.key()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	creations := []body{
		splitBody(time.Hour, 2*time.Hour), shapleyBody(time.Hour, 2*time.Hour), randomBody(3, 1<<40, time.Hour, 2*time.Hour),
		retained(splitBody(time.Hour, 2*time.Hour), "open", "purge"),
	}
	idle := func(b body) *dealt { return c.createWith(key, b) }
	var commit, cancel func() target
	commit = func() target {
		d := idle(splitBody(time.Hour, 2*time.Hour))
		return target{d, d.path("/commit"), d.Tokens[0], text(seal(t, annsValues).act("commit")), commit}
	}
	cancel = func() target {
		d := idle(splitBody(time.Hour, 2*time.Hour))
		return target{d, d.path("/cancel"), key, `{"reason":["none",{"of":"yours"}]}`, cancel}
	}
	reveal := func(b body, mine, other body) func() target {
		var again func() target
		again = func() target {
			s := seal(t, mine)
			d := c.committed(b, s.Commitment, seal(t, other))
			return target{d, d.path("/reveal"), d.Tokens[0], text(s.act("reveal")), again}
		}
		return again
	}
	targets := map[string]func() target{
		"keys":   func() target { return target{path: "/v1/keys", body: `{"note":{"of":[1,"x"]}}`} },
		"commit": commit,
		"cancel": cancel,
		"split":  reveal(creations[0], annsValues, bobsValues),
		"accept": reveal(creations[1], body{"accept": true}, body{"accept": true}),
		"nonce":  reveal(randomBody(2, 1<<40, time.Hour, 2*time.Hour), body{"nonce": "00ff"}, body{"nonce": ""}),
		"entropy": func() target {
			d := idle(splitBody(time.Hour, 2*time.Hour))
			return target{deal: d, path: d.path("/entropy"), token: key, body: `{"value":"00"}`}
		},
	}
	for i, b := range creations {
		targets[fmt.Sprint("create ", i)] = func() target { return target{path: "/v1/deals", token: key, body: text(b)} }
	}
	for name, first := range targets {
		t.Run(name, func(t *testing.T) {
			c, m := surfaceClient(t), mutator{rand.New(rand.NewPCG(seed, uint64(len(name))))}
			count := func() int64 {
				return w.number("SELECT (SELECT count(*) FROM deals) + (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM commitments) + (SELECT count(*) FROM reveals)")
			}
			at := first()
			taken, refused := 0, 0
			before := count()
			for range rounds {
				sent := m.mutated(at.body)
				var view string
				if at.deal != nil {
					view = string(c.want(200, "GET", at.deal.path(""), at.deal.Key, nil).body)
				}
				a := c.do("POST", at.path, at.token, sent)
				switch {
				case a.status >= 500 || a.status < 200 || a.status >= 300 && a.status < 400:
					t.Fatalf("%q: %d %s", sent, a.status, a.body)
				case a.status < 300:
					taken++
					if at.renew != nil {
						at = at.renew()
					}
					before = count()
				default:
					refused++
					if at.deal != nil && view != string(c.want(200, "GET", at.deal.path(""), at.deal.Key, nil).body) {
						t.Fatalf("%q was refused with %s and changed the deal", sent, a.body)
					}
					if n := count(); n != before {
						t.Fatalf("%q was refused with %s and left %d rows", sent, a.body, n-before)
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
