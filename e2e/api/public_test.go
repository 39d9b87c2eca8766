package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// public is the answer to GET /v1/public/{id}.
type public struct {
	Deal   e2e.View
	Bundle json.RawMessage
}

func read(c *e2e.Client, id string) (p public, a e2e.Answer) {
	c.T.Helper()
	a = c.Want(200, "GET", "/v1/public/"+id, "", nil)
	a.Into(c.T, &p)
	return p, a
}

// A deal that declares no audience looks to a stranger as one that does not exist, whatever credential the stranger sends.
func TestAPrivateDealLooksUnknown(t *testing.T) {
	c := newClient(t)
	private := c.Create(split())
	unknown := c.Refused(404, "DEAL_NOT_FOUND", "GET", "/v1/public/d_AAAAAAAAAAAAAAAAAAAAAA", "", nil)
	for _, id := range []string{private.ID, "d_", "d_%00", strings.Repeat("d", 400)} {
		for _, token := range []string{"", private.Tokens[0], private.Key} {
			a := c.Refused(404, "DEAL_NOT_FOUND", "GET", "/v1/public/"+id, token, nil)
			if string(a.Body) != string(unknown.Body) {
				t.Errorf("deal %.40q with %.3q: %s, want the answer for an unknown deal, %s", id, token, a.Body, unknown.Body)
			}
		}
	}
	c.Want(404, "HEAD", "/v1/public/"+private.ID, "", nil)
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/deals", private.Key, changed(split(), "audience", "everybody"))
}

// Everybody sees a public deal from its creation on, and its proof at the end, but no credential and no input.
func TestAPublicDealHidesInputs(t *testing.T) {
	c := newClient(t)
	b := changed(split(), "audience", "public", "mode", "open", "title", "A boat")
	d := c.Create(b)
	seen := c.Want(200, "GET", d.Path(""), d.Tokens[1], nil)
	if cautions := seen.Header.Get("Fairpact-Caution"); !strings.Contains(cautions, "the deal is public") {
		t.Errorf("a party is warned %q, want that the deal is public", cautions)
	}
	before, _ := read(c, d.ID)
	if v := before.Deal; v.State != "OPEN" || len(v.Parties) != 2 || string(before.Bundle) != "null" {
		t.Errorf("before a commitment everybody sees %+v, want two parties and no bundle", before)
	}
	sealed := d.Play(e2e.AnnsValues, e2e.BobsValues)
	d.Certified(e2e.DefaultTimeout)
	var after public
	var a e2e.Answer
	e2e.Eventually(t, "the public deal has its bundle", e2e.DefaultTimeout, func() bool {
		after, a = read(c, d.ID)
		return after.Deal.CertificateID != nil
	})
	for _, secret := range append(append([]string{"valuations"}, d.Tokens...), d.Key, sealed[0].Salt, sealed[1].Salt) {
		if strings.Contains(string(a.Body), secret) {
			t.Errorf("the public deal holds %.12q…, want no credential, input or salt", secret)
		}
	}
	if good, said := e2e.Verifier(t, "--bundle", e2e.File(t, []byte(after.Bundle))); !good {
		t.Errorf("the independent verifier rejects the public bundle:\n%s", said)
	}
	e2e.Eventually(t, "a second read of the same answer is 304", e2e.DefaultTimeout, func() bool { // a new tree head changes the bundle
		_, a = read(c, d.ID)
		return c.Do("GET", "/v1/public/"+d.ID, "", nil, "If-None-Match", a.Header.Get("ETag")).Status == 304
	})
	if a.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the answer allows the origin %q, want every origin", a.Header.Get("Access-Control-Allow-Origin"))
	}
}

// One organiser acts for 40 names. The service draws when the round is out, and a stranger recomputes the winner from the public
// bundle alone, which says that the organiser acted for all.
func TestADrawByOneOrganiser(t *testing.T) {
	c := newClient(t)
	key, chain := c.Key(), e2e.BeaconChain(t)
	body := func(lead time.Duration) e2e.Body {
		until := e2e.After(2 * lead)
		b := e2e.Timed(random(40, chain.RoundAt(until)+1), e2e.After(lead), until)
		return changed(b, "audience", "public", "acted_by", "initiator")
	}
	early := changed(body(time.Hour), "algorithm_params", e2e.Body{"beacon_round": chain.RoundAt(e2e.After(time.Hour))})
	for want, wrong := range map[string][]e2e.Body{
		"acted_by is initiator":           {changed(split(), "acted_by", "initiator"), changed(early, "audience", nil)},
		"whoever reveals last can choose": {early, changed(early, "acted_by", nil)},
	} {
		for _, b := range wrong {
			if a := c.Refused(400, "INVALID_PARAMS", "POST", "/v1/deals", key, b); !strings.Contains(a.ErrorText(), want) {
				t.Errorf("%v: %s, want %q", b, a.ErrorText(), want)
			}
		}
	}
	var d *e2e.CreatedDeal
	e2e.InTime(t, 2*time.Second, func(lead time.Duration) bool {
		if d = c.CreateInTime(key, body(lead)); d == nil {
			return false
		}
		s := e2e.Seal(t, e2e.Body{"nonce": "c0ffee"})
		for _, action := range []string{"commit", "reveal"} {
			for party := range d.Tokens {
				if !d.Attempt(action, party, s.Act(action)) {
					return false
				}
			}
		}
		return true
	})
	var drawn public
	e2e.Eventually(t, "the draw and its proof", e2e.DefaultTimeout, func() bool {
		drawn, _ = read(c, d.ID)
		return string(drawn.Bundle) != "null"
	})
	var bundle struct {
		Certificate struct{ Properties []string }
		Declaration struct {
			Audience string
			ActedBy  string `json:"acted_by"`
		}
		Openings []json.RawMessage
		Own      *json.RawMessage `json:"own_input"`
	}
	e2e.Answer{Body: drawn.Bundle}.Into(t, &bundle)
	if !strings.Contains(strings.Join(bundle.Certificate.Properties, " "), "acted-by-initiator") || bundle.Declaration.Audience != "public" || bundle.Declaration.ActedBy != "initiator" {
		t.Errorf("properties %v and declaration %+v, want both to say that the initiator acted for all", bundle.Certificate.Properties, bundle.Declaration)
	}
	if len(bundle.Openings) != 40 || bundle.Own != nil {
		t.Errorf("the public bundle has %d openings and own_input %v, want 40 and none", len(bundle.Openings), bundle.Own)
	}
	good, said := e2e.Verifier(t, "--bundle", e2e.File(t, []byte(drawn.Bundle)))
	if !good || !strings.Contains(said, "the initiator acted for all parties") {
		t.Errorf("the independent verifier accepts the draw: %v, and says\n%s\nwant that it says who acted", good, said)
	}
}
