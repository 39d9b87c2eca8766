package api

import (
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// waited is the path of a view that waits the longest.
func waited(d *e2e.Dealt, since string) string {
	return d.Path("?wait=45&since=" + url.QueryEscape(since))
}

// Whoever waits since what it has seen is told of each change, whether it came
// before the call or meanwhile.
func TestWaitIsAnsweredWithTheChange(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	all := []e2e.Sealed{e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 1}})}
	for _, step := range []struct {
		what string
		take func()
		is   func(e2e.View) bool
	}{
		{"a commit", func() { d.Commit(1, all[1]) }, func(v e2e.View) bool { return v.State == "COMMITTING" && v.Parties[1].Committed }},
		{"the last commit", func() { d.Commit(0, all[0]) }, func(v e2e.View) bool { return v.State == "REVEALING" }},
		{"a reveal", func() { d.Reveal(0, all[0]) }, func(v e2e.View) bool { return v.Parties[0].Revealed }},
		{"the last reveal", func() { d.Reveal(1, all[1]) }, func(v e2e.View) bool { return v.State == "COMPUTED" }},
	} {
		seen := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Header.Get("ETag")
		got := make(chan e2e.Answer, 1)
		var waits sync.WaitGroup
		waits.Go(func() { got <- c.Want(200, "GET", waited(d, seen), d.Tokens[0], nil) })
		step.take()
		waits.Wait()
		var v e2e.View
		a := <-got
		a.Into(t, &v)
		if !step.is(v) || a.Header.Get("ETag") == seen {
			t.Errorf("%s: %+v, tag %s, before %s", step.what, v, a.Header.Get("ETag"), seen)
		}
		var again e2e.View // the change lies before the call
		c.Want(200, "GET", waited(d, seen), d.Tokens[0], nil).Into(t, &again)
		if !step.is(again) {
			t.Errorf("%s, asked later: %+v", step.what, again)
		}
	}
	d.Certified(e2e.Patience)
	began := time.Now()
	for _, since := range []string{"", "COMPUTED", "COMMITTING", c.Want(200, "GET", d.Path(""), d.Key, nil).Header.Get("ETag")} {
		if v := c.Want(200, "GET", waited(d, since), d.Key, nil); v.Header.Get("Fairpact-Next-Look") != "" {
			t.Errorf("a deal that changes no more says to look again at %s", v.Header.Get("Fairpact-Next-Look"))
		}
	}
	if time.Since(began) >= 45*time.Second {
		t.Error("a deal that changes no more is waited for")
	}
}

// At the end of its time a wait is answered as a call without one.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	plain := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil)
	for _, query := range []string{"?wait=1", "?wait=1&since=OPEN", "?wait=1&since=" + url.QueryEscape(plain.Header.Get("ETag"))} {
		a := c.Want(200, "GET", d.Path(query), d.Tokens[0], nil)
		if string(a.Body) != string(plain.Body) || a.Header.Get("ETag") != plain.Header.Get("ETag") {
			t.Errorf("%s: %s", query, a.Body)
		}
	}
	c.Want(304, "GET", d.Path("?wait=1&since=OPEN"), d.Tokens[0], nil, "If-None-Match", plain.Header.Get("ETag"))
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate?wait=1"), d.Tokens[0], nil)
}

// A certificate is waited for from before the deal's end, and by nobody where
// there will be none.
func TestCertificateIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	got := make(chan e2e.Answer, 1)
	go func() { got <- c.Want(200, "GET", d.Path("/certificate?wait=45"), d.Tokens[1], nil) }()
	d.Play(e2e.Body{"valuations": e2e.Body{"car": 1}}, e2e.Body{"valuations": e2e.Body{"boat": 1}})
	e2e.Independently(t, c, (<-got).Body, true)

	gone := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	refused := make(chan e2e.Answer, 1)
	go func() {
		refused <- c.Refused(409, "NO_CERTIFICATE", "GET", gone.Path("/certificate?wait=45"), gone.Tokens[1], nil)
	}()
	c.Want(200, "POST", gone.Path("/cancel"), gone.Key, nil)
	<-refused
}

// A wait that is no number of seconds, or since what no view was, is refused after
// the credential and the deal.
func TestWaitIsChecked(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d, other := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)), c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	for _, query := range []string{"?wait=0", "?wait=46", "?wait=x", "?wait=", "?wait=5&since=open", "?wait=5&since=x"} {
		c.Refused(400, "INVALID_REQUEST", "GET", d.Path(query), d.Tokens[0], nil)
		c.Refused(400, "INVALID_REQUEST", "GET", d.Path("/certificate"+query), d.Tokens[0], nil)
		c.Refused(401, "AUTH_REQUIRED", "GET", d.Path(query), "", nil)
		c.Refused(403, "FORBIDDEN", "GET", d.Path(query), other.Tokens[0], nil)
	}
}

// Each view says by when to look again.
func TestNextLook(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	d := c.Create(b)
	look := func() string {
		return c.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Header.Get("Fairpact-Next-Look")
	}
	if got := look(); got != fmt.Sprint(b["commit_deadline"]) {
		t.Errorf("OPEN: %s, want %v", got, b["commit_deadline"])
	}
	d.Commit(0, e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}))
	d.Commit(1, e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}))
	if got := look(); got != fmt.Sprint(b["reveal_deadline"]) {
		t.Errorf("REVEALING: %s, want %v", got, b["reveal_deadline"])
	}
	round := e2e.FarRound(t)
	draw := c.Create(e2e.RandomBody(2, round, time.Hour, 2*time.Hour))
	draw.Play(e2e.Body{"nonce": "00"}, e2e.Body{"nonce": "01"})
	got := c.Want(200, "GET", draw.Path(""), draw.Tokens[0], nil).Header.Get("Fairpact-Next-Look")
	at, err := strconv.ParseInt(got, 10, 64)
	if chain := e2e.BeaconChain(t); err != nil || chain.RoundAt(at) != round || chain.RoundAt(at-1) == round {
		t.Errorf("all have revealed: %s, want the time of round %d", got, round)
	}
}
