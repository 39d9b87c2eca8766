package api

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// The header Fairpact-Next-Look is the time of the next deadline or of the beacon round.
func TestViewWaitsForEachChange(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	b := split()
	d := c.Create(b)
	later := func(path string) <-chan e2e.Answer {
		got := make(chan e2e.Answer, 1)
		go func() { got <- c.Do("GET", path, d.Tokens[0], nil) }()
		return got
	}
	certificate := later(d.Path("/certificate?wait=45"))
	inputs := []e2e.Sealed{e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)}
	for _, step := range []struct {
		act   func()
		state string
		look  any
	}{
		{func() { d.Commit(1, inputs[1]) }, "COMMITTING", b["commit_deadline"]},
		{func() { d.Commit(0, inputs[0]) }, "REVEALING", b["commit_deadline"]},
		{func() { d.Reveal(0, inputs[0]) }, "REVEALING", b["reveal_deadline"]},
		{func() { d.Reveal(1, inputs[1]) }, "COMPUTED", b["reveal_deadline"]},
	} {
		before := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil)
		if look := before.Header.Get("Fairpact-Next-Look"); look != fmt.Sprint(step.look) {
			t.Errorf("before %s: Fairpact-Next-Look %s, want %v", step.state, look, step.look)
		}
		since := before.Header.Get("ETag")
		waited := d.Path("?wait=45&since=" + url.QueryEscape(since))
		change := later(waited)
		step.act()
		for what, a := range map[string]e2e.Answer{"during the wait": <-change, "before the call": <-later(waited)} {
			var v e2e.View
			if a.Into(t, &v); a.Status != 200 || v.State != step.state || a.Header.Get("ETag") == since {
				t.Errorf("a change %s: %d %s, want 200 with %s and a new ETag", what, a.Status, a.Body, step.state)
			}
		}
	}
	a := <-certificate
	e2e.RequireIndependentVerdict(t, c, a.Body, true)

	began := time.Now()
	for _, since := range []string{"", "COMPUTED", c.Want(200, "GET", d.Path(""), d.Key, nil).Header.Get("ETag")} {
		if v := c.Want(200, "GET", d.Path("?wait=45&since="+url.QueryEscape(since)), d.Key, nil); v.Header.Get("Fairpact-Next-Look") != "" {
			t.Errorf("a deal that has ended has Fairpact-Next-Look %s, want none", v.Header.Get("Fairpact-Next-Look"))
		}
	}
	if time.Since(began) >= 45*time.Second {
		t.Error("a call waited 45 s for a deal that has ended")
	}

	round := farRound(t)
	draw := c.Create(random(2, round))
	draw.Play(e2e.Body{"nonce": "00"}, e2e.Body{"nonce": "01"})
	if look, want := c.Want(200, "GET", draw.Path(""), draw.Tokens[0], nil).Header.Get("Fairpact-Next-Look"), fmt.Sprint(e2e.BeaconChain(t).RoundTime(round)); look != want {
		t.Errorf("after all reveals: Fairpact-Next-Look %s, want %s, the time of the round", look, want)
	}
}

// A wait that times out gets the same answer as a call without the parameter `wait`. A wait for a
// certificate ends when the deal is cancelled.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	d := c.Create(split())
	plain := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil)
	tag := plain.Header.Get("ETag")
	if a := c.Want(200, "GET", d.Path("?wait=1&since="+url.QueryEscape(tag)), d.Tokens[0], nil); string(a.Body) != string(plain.Body) || a.Header.Get("ETag") != tag {
		t.Errorf("after the wait timed out: %s, want %s", a.Body, plain.Body)
	}
	c.Want(304, "GET", d.Path("?wait=1&since=OPEN"), d.Tokens[0], nil, "If-None-Match", tag)
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate?wait=1"), d.Tokens[0], nil)
	refused := make(chan e2e.Answer, 1)
	go func() { refused <- c.Do("GET", d.Path("/certificate?wait=45"), d.Tokens[0], nil) }()
	c.Want(200, "POST", d.Path("/cancel"), d.Key, nil)
	if a := <-refused; a.Code() != "NO_CERTIFICATE" {
		t.Errorf("the certificate of a cancelled deal: %d %s, want NO_CERTIFICATE", a.Status, a.Body)
	}
}

// Waits end when the beacon round of a deal is due, because a caller can then draw. The
// refusal of GET certificate names the call that draws.
func TestTheRoundEndsWaits(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	chain := e2e.BeaconChain(t)
	round := chain.RoundAt(time.Now().Unix()) + 6
	d := c.Create(random(2, round))
	d.Play(e2e.Body{"nonce": "00"}, e2e.Body{"nonce": "01"})
	early := c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	if said := early.ErrorText(); !strings.Contains(said, fmt.Sprintf("due at %d", chain.RoundTime(round))) || early.Header.Get("Retry-After") == "" {
		t.Errorf("before the round: error %s and Retry-After %q, want the time %d and a Retry-After", said, early.Header.Get("Retry-After"), chain.RoundTime(round))
	}
	began := time.Now()
	var waits sync.WaitGroup
	waits.Go(func() {
		a := c.Do("GET", d.Path("/certificate?wait=45"), d.Tokens[0], nil)
		if said := a.ErrorText(); a.Code() != "CERT_NOT_READY" || !strings.Contains(said, "round is published") || !strings.HasSuffix(said, "draw with POST "+d.Path("/entropy")) || a.Header.Get("Retry-After") == "" {
			t.Errorf("wait for the certificate: %d %s, want CERT_NOT_READY that names POST entropy, with Retry-After", a.Status, a.Body)
		}
	})
	waits.Go(func() {
		var v e2e.View
		if c.Do("GET", d.Path("?wait=45&since=REVEALING"), d.Tokens[0], nil).Into(t, &v); v.State != "REVEALING" {
			t.Errorf("wait for the view: %+v, want REVEALING", v)
		}
	})
	waits.Go(func() {
		v := c.Raw("get_deal", fmt.Sprintf(`{"deal_id":%q,"invite_token":%q,"wait_seconds":45,"since":"REVEALING"}`, d.ID, d.Tokens[1]))
		if v.Meta.Next.Tool != "get_certificate" {
			t.Errorf("wait for the view over MCP: next step %+v, want get_certificate", v.Meta.Next)
		}
	})
	waits.Wait()
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate?wait=45"), d.Tokens[0], nil)
	if now := time.Now(); now.Unix() < chain.RoundTime(round) || now.Sub(began) >= 45*time.Second {
		t.Errorf("the waits ended after %s, at %d; want less than 45 s, and not before the round at %d", now.Sub(began), now.Unix(), chain.RoundTime(round))
	}
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	e2e.RequireIndependentVerdict(t, c, c.Want(200, "GET", d.Path("/certificate?wait=45"), d.Tokens[0], nil).Body, true)
}

// The service checks the credential, and its access to the deal, before the parameters of a wait.
func TestWaitIsChecked(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	d, other := c.Create(split()), c.Create(split())
	for _, query := range []string{"?wait=46", "?wait=5&since=open"} {
		c.Refused(400, "INVALID_REQUEST", "GET", d.Path(query), d.Tokens[0], nil)
		c.Refused(400, "INVALID_REQUEST", "GET", d.Path("/certificate"+query), d.Tokens[0], nil)
		c.Refused(401, "AUTH_REQUIRED", "GET", d.Path(query), "", nil)
		c.Refused(403, "FORBIDDEN", "GET", d.Path(query), other.Tokens[0], nil)
	}
}
