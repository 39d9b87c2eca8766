package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

type opened struct {
	Input json.RawMessage `json:"input"`
	Salt  string          `json:"salt"`
}

func openings(t *testing.T, a e2e.Answer) []opened {
	t.Helper()
	var bundle struct {
		Openings []opened `json:"openings"`
	}
	a.Into(t, &bundle)
	return bundle.Openings
}

// A sealed split shows its inputs, and the bundle its openings, once all parties have consented. Until then
// nobody sees anything, and the errors name the missing parties.
func TestConsentOfAllPartiesShowsTheInputs(t *testing.T) {
	c := newClient(t)
	values := []e2e.Body{e2e.AnnsValues, e2e.BobsValues}
	b := split()
	d := c.Create(b)
	all := []e2e.Sealed{e2e.Seal(t, values[0]), e2e.Seal(t, values[1])}
	disclose := func(party int, s e2e.Sealed) (r struct {
		DealID    string `json:"deal_id"`
		Party     int
		Disclosed bool
		Missing   []int
	}) {
		t.Helper()
		c.Want(200, "POST", d.Path("/disclose"), d.Tokens[party], s.Act("reveal")).Into(t, &r)
		if r.DealID != d.ID || r.Party != party || !r.Disclosed || r.Missing == nil {
			t.Errorf("disclose of party %d: %+v, want the deal, the party, disclosed and a list", party, r)
		}
		return r
	}
	d.Commit(0, all[0])
	d.Commit(1, all[1])
	c.Refused(409, "INPUTS_NOT_READY", "POST", d.Path("/disclose"), d.Tokens[0], all[0].Act("reveal"))
	d.Reveal(0, all[0])
	c.Refused(409, "INPUTS_NOT_READY", "POST", d.Path("/disclose"), d.Tokens[0], all[0].Act("reveal"))
	d.Reveal(1, all[1])
	d.Certified(e2e.DefaultTimeout)

	hidden := func(missing string) {
		t.Helper()
		for _, token := range d.Tokens {
			if a := c.Refused(409, "INPUTS_SEALED", "GET", d.Path("/inputs"), token, nil); !strings.Contains(a.ErrorText(), "missing: party "+missing+".") || !strings.Contains(a.ErrorText(), "POST "+d.Path("/disclose")) {
				t.Errorf("the error does not name party %s and the call: %s", missing, a.ErrorText())
			}
			for _, query := range []string{"", "?openings=1"} {
				a := c.Want(200, "GET", d.Path("/bundle"+query), token, nil)
				if strings.Contains(string(a.Body), "openings") || strings.Contains(string(a.Body), all[0].Salt) {
					t.Errorf("the bundle shows an opening before all parties have consented: %s", a.Body)
				}
			}
		}
	}
	hidden("0, 1")
	// The initiator has had all tokens: the token of a party without the party's opening consents to nothing.
	c.Refused(400, "INVALID_REQUEST", "POST", d.Path("/disclose"), d.Tokens[1], e2e.Body{})
	c.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/disclose"), d.Tokens[1], all[0].Act("reveal"))
	c.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/disclose"), d.Tokens[1], e2e.Body{"input": all[1].Input})
	hidden("0, 1")
	for range 2 {
		if r := disclose(0, all[0]); !slices.Equal(r.Missing, []int{1}) {
			t.Errorf("missing %v after party 0, want party 1", r.Missing)
		}
		hidden("1")
	}
	for range 2 {
		if r := disclose(1, all[1]); len(r.Missing) != 0 {
			t.Errorf("missing %v after both parties, want none", r.Missing)
		}
	}
	disclosed(t, c, d, all)
	for _, token := range d.Tokens {
		isOpened(t, c.Want(200, "GET", d.Path("/bundle"), token, nil, "Accept-Encoding", "gzip"), all)
	}
	c.Refused(400, "INVALID_REQUEST", "GET", d.Path("/bundle?openings=yes"), d.Tokens[0], nil)
	if view := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil); strings.Contains(string(view.Body), all[1].Salt) {
		t.Errorf("the view shows a salt: %s", view.Body)
	}
}

// isOpened checks a bundle that shows inputs: no cache stores it, and it is not compressed.
func isOpened(t *testing.T, a e2e.Answer, all []e2e.Sealed) {
	t.Helper()
	if a.Header.Get("ETag") != "" || a.Header.Get("Content-Encoding") != "" || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("a bundle with openings has the header %v, want no-store, no ETag and no Content-Encoding", a.Header)
	}
	found := openings(t, a)
	if len(found) != len(all) {
		t.Fatalf("the bundle has %d openings, want %d: %s", len(found), len(all), a.Body)
	}
	for i, o := range found {
		if o.Salt != all[i].Salt || sha(canonical(t, o.Input), []byte(o.Salt)) != all[i].Commitment {
			t.Errorf("opening %d is %s and %s, want the one that opens %s", i, o.Input, o.Salt, all[i].Commitment)
		}
	}
}

// After a draw each party sees all nonces and salts in either mode, but not after a draw with retention purge.
func TestDrawShowsItsNonces(t *testing.T) {
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	for _, mode := range []string{"sealed", "open"} {
		for _, retention := range []string{"standard", "purge"} {
			t.Run(mode+" and "+retention, func(t *testing.T) {
				c := newClient(t)
				key := c.Key()
				a := c.Want(201, "POST", "/v1/deals", key, e2e.Retained(random(3, past), mode, retention))
				var made struct{ Warning string }
				a.Into(t, &made)
				warns := strings.Contains(made.Warning, "nobody will be able to check the draw")
				if warns != (retention == "purge") {
					t.Errorf("the warning is %q, want one about the draw only with purge", made.Warning)
				}
				d := c.Created(key, a)
				view := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil)
				if told := strings.Contains(strings.Join(view.Header.Values("Fairpact-Caution"), " "), "check the draw"); told != warns {
					t.Errorf("the parties are cautioned: %v, want %v", told, warns)
				}
				all := d.Play(e2e.Body{"nonce": "1f"}, e2e.Body{"nonce": "ABC"}, e2e.Body{"nonce": ""})
				before := map[string]string{"standard": "INPUTS_NOT_READY", "purge": "INPUTS_SEALED"}[retention]
				for i, token := range d.Tokens {
					c.Refused(409, before, "GET", d.Path("/inputs"), token, nil)
					c.Refused(409, before, "POST", d.Path("/disclose"), token, all[i].Act("reveal"))
				}
				c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
				d.Certified(e2e.DefaultTimeout)
				if retention == "purge" {
					for i, token := range d.Tokens {
						c.Refused(409, "INPUTS_SEALED", "GET", d.Path("/inputs"), token, nil)
						c.Refused(409, "INPUTS_SEALED", "POST", d.Path("/disclose"), token, all[i].Act("reveal"))
						if found := openings(t, c.Want(200, "GET", d.Path("/bundle?openings=1"), token, nil)); found != nil {
							t.Errorf("the bundle of a purged deal has openings: %v", found)
						}
					}
					return
				}
				disclosed(t, c, d, all)
				for i, token := range d.Tokens {
					isOpened(t, c.Want(200, "GET", d.Path("/bundle"), token, nil), all)
					var r struct{ Missing []int }
					if c.Want(200, "POST", d.Path("/disclose"), token, all[i].Act("reveal")).Into(t, &r); r.Missing == nil || len(r.Missing) > 0 {
						t.Errorf("disclose after a draw: missing %v, want none", r.Missing)
					}
				}
				c.Refused(403, "FORBIDDEN", "GET", d.Path("/inputs"), d.Key, nil)
				c.Refused(403, "FORBIDDEN", "GET", d.Path("/bundle"), d.Key, nil)
			})
		}
	}
}

// Openings of more than 4 MiB are in the bundle only on request.
func TestLargeOpeningsOnlyOnRequest(t *testing.T) {
	c := newClient(t)
	const parties = 1050 // with inputs of almost 4 KiB, the most that random.v1 takes
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	d := c.Create(e2e.Timed(random(parties, past), e2e.After(20*time.Minute), e2e.After(40*time.Minute)))
	inputs := make([]e2e.Body, parties)
	for i := range inputs {
		inputs[i] = e2e.Body{"nonce": "1f", "pad": strings.Repeat("x", 4050)}
	}
	all := d.Play(inputs...)
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	d.Certified(e2e.DefaultTimeout)
	if found := openings(t, c.Want(200, "GET", d.Path("/bundle"), d.Tokens[0], nil)); found != nil {
		t.Errorf("the bundle has %d openings, want none", len(found))
	}
	isOpened(t, c.Want(200, "GET", d.Path("/bundle?openings=1"), d.Tokens[0], nil), all)
}
