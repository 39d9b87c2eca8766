package e2e

import (
	"testing"
	"time"
)

// A deal of each algorithm from its key to its verified certificate.
func TestWayOfADeal(t *testing.T) {
	c := newClient(t, baseURL(t))
	chain := beaconChain(t)
	past := chain.RoundAt(time.Now().Unix()) - 10
	for name, play := range map[string]func() *dealt{
		"split": func() *dealt {
			d := c.create(splitBody(time.Minute, 2*time.Minute))
			d.play(body{"valuations": body{"car": 70, "boat": 30}}, body{"valuations": body{"car": 40, "boat": 60}})
			return d
		},
		"random": func() *dealt {
			d := c.create(randomBody(3, past, time.Minute, 2*time.Minute))
			d.play(body{"nonce": "aa"}, body{"nonce": "bb"}, body{"nonce": "cc"})
			c.want(200, "POST", d.path("/entropy"), d.Tokens[1], nil)
			return d
		},
		"shapley": func() *dealt {
			d := c.create(shapleyBody(time.Minute, 2*time.Minute))
			d.play(body{"accept": true}, body{"accept": true})
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := play()
			v := d.view()
			if v.State != "COMPUTED" || v.Result == nil || v.CertificateID == nil || v.ComputedAt == nil || v.VoidFlakers != nil {
				t.Fatalf("view: %+v", v)
			}
			if r := c.verify(*v.CertificateID); !r.Valid || r.Outcome != "COMPUTED" {
				t.Errorf("verification: %+v", r)
			}
			independently(t, c, d.certified(0), true)
		})
	}
}
