package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The parties of an open deal fetch all inputs once it is COMPUTED; in no other
// mode, state or retention, and the view holds them never.
func TestOpenAndPurge(t *testing.T) {
	c, w := surfaceClient(t), database(t, shared(t))
	const marker = "4711" // in every input and salt
	inputs := []body{{"valuations": body{"car": 47110, "boat": 1}}, {"valuations": body{"car": 2, "boat": 47111}, "note": "of 4711"}}
	for _, mode := range []string{"sealed", "open"} {
		for _, retention := range []string{"standard", "purge"} {
			t.Run(mode+" and "+retention, func(t *testing.T) {
				c, w := surfaceClient(t), witness{t, w.pool}
				given := mode == "open" && retention == "standard"
				waits := map[bool]string{true: "INPUTS_NOT_READY", false: "INPUTS_SEALED"}[given]
				d := c.create(retained(splitBody(time.Hour, 2*time.Hour), mode, retention))
				var all []sealed
				for _, in := range inputs {
					all = append(all, seal(t, in))
				}
				refused := func() {
					t.Helper()
					for _, token := range d.Tokens {
						c.refused(409, waits, "GET", d.path("/inputs"), token, nil)
					}
					c.refused(403, "FORBIDDEN", "GET", d.path("/inputs"), d.Key, nil)
				}
				refused()
				for p, s := range all {
					d.commit(p, s)
					refused()
				}
				d.reveal(0, all[0])
				refused()
				if n := w.number("SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.ID); n != 1 {
					t.Errorf("%d inputs are kept while the deal runs, want 1", n)
				}
				d.reveal(1, all[1])
				if given {
					disclosed(t, c, d, all)
				} else {
					refused()
				}
				kept := map[string]int64{"standard": 2, "purge": 0}[retention]
				if n := w.number("SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.ID); n != kept {
					t.Errorf("%d inputs are kept, want %d", n, kept)
				}
				view, cert := c.want(200, "GET", d.path(""), d.Tokens[0], nil).body, d.certified(patience)
				for name, text := range map[string][]byte{"view": view, "certificate": cert} {
					for _, s := range all {
						if strings.Contains(string(text), marker) || strings.Contains(string(text), s.Salt) {
							t.Errorf("the %s holds an input: %s", name, text)
						}
					}
				}
				var v struct {
					Mode, Retention string
					InputRoot       string `json:"input_root"`
					Properties      []string
				}
				answer{body: cert}.into(t, &v)
				purged := strings.Contains(fmt.Sprint(v.Properties), "inputs-purged")
				if v.Mode != mode || v.Retention != retention || v.InputRoot == "" || purged != (retention == "purge") {
					t.Errorf("certificate: %+v", v)
				}
			})
		}
	}
	// A deal that ends otherwise never gives its inputs out, and purge still counts.
	for _, retention := range []string{"standard", "purge"} {
		b := retained(shapleyBody(time.Hour, 2*time.Hour), "open", retention)
		d := c.create(b)
		yes, no := seal(t, body{"accept": true}), seal(t, body{"accept": false})
		d.commit(0, yes)
		d.commit(1, no)
		d.reveal(0, yes)
		d.reveal(1, no)
		c.refused(409, map[string]string{"standard": "INPUTS_NOT_READY", "purge": "INPUTS_SEALED"}[retention], "GET", d.path("/inputs"), d.Tokens[0], nil)
		if n := w.number("SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.ID); (n == 0) != (retention == "purge") {
			t.Errorf("%s: %d inputs are kept after a rejection", retention, n)
		}
	}
}

// disclosed holds GET inputs to what was revealed, to both parties alike.
func disclosed(t *testing.T, c *client, d *dealt, all []sealed) {
	t.Helper()
	for _, token := range d.Tokens {
		var r struct {
			DealID string `json:"deal_id"`
			Inputs []struct {
				Party *int
				Input json.RawMessage
				Salt  string
			}
		}
		c.want(200, "GET", d.path("/inputs"), token, nil).into(t, &r)
		if r.DealID != d.ID || len(r.Inputs) != len(all) {
			t.Fatalf("%+v", r)
		}
		for p, in := range r.Inputs {
			if *in.Party != p || in.Salt != all[p].Salt || sha(canonical(t, in.Input), []byte(in.Salt)) != all[p].Commitment {
				t.Errorf("party %d: %+v", p, in)
			}
		}
	}
}
