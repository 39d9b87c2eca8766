package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// Once a split with mode `open` and retention `standard` is COMPUTED, its parties can read all inputs. Without
// the consent of the parties no other split discloses inputs. No view or certificate contains an input.
func TestOpenAndPurge(t *testing.T) {
	c, w := newClient(t), e2e.OpenDB(t, e2e.Shared(t))
	const marker = "471147114711" // every input contains the marker, which is too long to occur in a hash by chance
	inputs := []e2e.Body{{"valuations": e2e.Body{"car": 4711471147110, "boat": 1}}, {"valuations": e2e.Body{"car": 2, "boat": 4711471147111}, "note": "of " + marker}}
	for _, mode := range []string{"sealed", "open"} {
		for _, retention := range []string{"standard", "purge"} {
			t.Run(mode+" and "+retention, func(t *testing.T) {
				c, w := newClient(t), e2e.DB{T: t, Pool: w.Pool}
				given := mode == "open" && retention == "standard"
				waits := map[string]string{"standard": "INPUTS_NOT_READY", "purge": "INPUTS_SEALED"}[retention]
				d := c.Create(e2e.Retained(split(), mode, retention))
				all := []e2e.Sealed{e2e.Seal(t, inputs[0]), e2e.Seal(t, inputs[1])}
				refused := func() {
					t.Helper()
					for _, token := range d.Tokens {
						c.Refused(409, waits, "GET", d.Path("/inputs"), token, nil)
					}
					c.Refused(403, "FORBIDDEN", "GET", d.Path("/inputs"), d.Key, nil)
				}
				refused()
				d.Commit(0, all[0])
				d.Commit(1, all[1])
				d.Reveal(0, all[0])
				refused()
				if n := w.KeptInputs(d.ID); n != 1 {
					t.Errorf("%d inputs are kept while the deal runs, want 1", n)
				}
				d.Reveal(1, all[1])
				if given {
					disclosed(t, c, d, all)
				} else {
					waits = "INPUTS_SEALED"
					refused()
				}
				kept := map[string]int64{"standard": 2, "purge": 0}[retention]
				if n := w.KeptInputs(d.ID); n != kept {
					t.Errorf("%d inputs are kept, want %d", n, kept)
				}
				view, cert := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Body, d.Certified(e2e.DefaultTimeout)
				for name, text := range map[string][]byte{"view": view, "certificate": cert} {
					for _, s := range all {
						if strings.Contains(string(text), marker) || strings.Contains(string(text), s.Salt) {
							t.Errorf("the %s contains an input: %s", name, text)
						}
					}
				}
				var v struct {
					Mode, Retention string
					InputRoot       string `json:"input_root"`
					Properties      []string
				}
				e2e.Answer{Body: cert}.Into(t, &v)
				purged := strings.Contains(fmt.Sprint(v.Properties), "inputs-purged")
				if v.Mode != mode || v.Retention != retention || v.InputRoot == "" || purged != (retention == "purge") {
					t.Errorf("certificate: %+v, want mode %s, retention %s, an input_root, and inputs-purged only for purge", v, mode, retention)
				}
			})
		}
	}
	for _, retention := range []string{"standard", "purge"} {
		x := e2e.Open(c, e2e.Retained(shapley(), "open", retention), 2, 2, e2e.Body{"accept": true}, e2e.Body{"accept": false})
		c.Refused(409, "INPUTS_SEALED", "GET", x.Deal.Path("/inputs"), x.Deal.Tokens[0], nil)
		c.Refused(409, "INPUTS_SEALED", "POST", x.Deal.Path("/disclose"), x.Deal.Tokens[0], x.Inputs[0].Act("reveal"))
		if n := w.KeptInputs(x.Deal.ID); (n == 0) != (retention == "purge") {
			t.Errorf("retention %s: %d inputs are kept after a rejection, want none if purge", retention, n)
		}
	}
}

func disclosed(t *testing.T, c *e2e.Client, d *e2e.CreatedDeal, all []e2e.Sealed) {
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
		c.Want(200, "GET", d.Path("/inputs"), token, nil).Into(t, &r)
		if r.DealID != d.ID || len(r.Inputs) != len(all) {
			t.Fatalf("GET inputs: %+v, want %d inputs of deal %s", r, len(all), d.ID)
		}
		for p, in := range r.Inputs {
			if *in.Party != p || in.Salt != all[p].Salt || sha(canonical(t, in.Input), []byte(in.Salt)) != all[p].Commitment {
				t.Errorf("input of party %d: %+v, want the one that opens %s", p, in, all[p].Commitment)
			}
		}
	}
}
