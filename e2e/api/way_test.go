package api

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// A deal of each algorithm from its key to its verified certificate.
func TestWayOfADeal(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	chain := e2e.BeaconChain(t)
	past := chain.RoundAt(time.Now().Unix()) - 10
	for name, play := range map[string]func() *e2e.Dealt{
		"split": func() *e2e.Dealt {
			d := c.Create(e2e.SplitBody(time.Minute, 2*time.Minute))
			d.Play(e2e.Body{"valuations": e2e.Body{"car": 70, "boat": 30}}, e2e.Body{"valuations": e2e.Body{"car": 40, "boat": 60}})
			return d
		},
		"random": func() *e2e.Dealt {
			d := c.Create(e2e.RandomBody(3, past, time.Minute, 2*time.Minute))
			d.Play(e2e.Body{"nonce": "aa"}, e2e.Body{"nonce": "bb"}, e2e.Body{"nonce": "cc"})
			c.Want(200, "POST", d.Path("/entropy"), d.Tokens[1], nil)
			return d
		},
		"shapley": func() *e2e.Dealt {
			d := c.Create(e2e.ShapleyBody(time.Minute, 2*time.Minute))
			d.Play(e2e.Body{"accept": true}, e2e.Body{"accept": true})
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := play()
			v := d.View()
			if v.State != "COMPUTED" || v.Result == nil || v.CertificateID == nil || v.ComputedAt == nil || v.VoidFlakers != nil {
				t.Fatalf("view: %+v", v)
			}
			if r := c.Verify(*v.CertificateID); !r.Valid || r.Outcome != "COMPUTED" {
				t.Errorf("verification: %+v", r)
			}
			e2e.Independently(t, c, d.Certified(0), true)
		})
	}
}
