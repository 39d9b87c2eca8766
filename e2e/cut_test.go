package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

type scenario func(c *client, lead time.Duration) *cut

// cut is a deal one step before the moment at which a process will be killed.
type cut struct {
	deal   *dealt // its calls go to a deal-api that is not killed
	params body
	inputs []sealed

	// last is the call that leads to the crash point.
	last struct{ action, token, body string }
	// clock tells that the clock ends the deal, at from (unix seconds), and that
	// the last call only looks at it then. Otherwise from is a deadline that must
	// pass before the recovery, 0 where there is none.
	clock bool
	from  int64

	outcome string // COMPUTED or VOID, once all is done
	flakers []int
}

// call makes the last call through any deal-api, always under the same
// Idempotency-Key.
func (x *cut) call(via *client) (answer, error) {
	method := http.MethodPost
	if x.last.action == "" {
		method = http.MethodGet
	}
	return via.try(via.t.Context(), method, x.deal.path(x.last.action), x.last.token, x.last.body, "Idempotency-Key", "last-"+x.deal.ID)
}

func (x *cut) ends(action string, party int, b body) *cut {
	text, err := json.Marshal(b)
	if err != nil {
		x.deal.c.t.Fatal(err)
	}
	x.last = struct{ action, token, body string }{action, x.deal.Tokens[party], string(text)}
	return x
}

func (x *cut) revealing(party int) *cut {
	return x.ends("/reveal", party, body{"input": x.inputs[party].Input, "salt": x.inputs[party].Salt})
}

// open creates a deal and makes the commits and then the reveals of the first so
// many parties.
func open(c *client, b body, commits, reveals int, inputs ...body) *cut {
	c.t.Helper()
	x := &cut{deal: c.create(b), params: b["algorithm_params"].(body), outcome: "COMPUTED"}
	for _, in := range inputs {
		x.inputs = append(x.inputs, seal(c.t, in))
	}
	for i := range commits {
		x.deal.commit(i, x.inputs[i])
	}
	for i := range reveals {
		x.deal.reveal(i, x.inputs[i])
	}
	return x
}

var (
	annsValues = body{"valuations": body{"car": 70, "boat": 30}}
	bobsValues = body{"valuations": body{"car": 40, "boat": 60}}
)

// The scenarios. lead is how far away at least the first deadline is; nil says
// that it came before the deal was made.

func lastReveal(c *client, _ time.Duration) *cut {
	return open(c, splitBody(time.Hour, 2*time.Hour), 2, 1, annsValues, bobsValues).revealing(1)
}

func lastCommit(c *client, _ time.Duration) *cut {
	x := open(c, splitBody(time.Hour, 2*time.Hour), 1, 0, annsValues, bobsValues)
	return x.ends("/commit", 1, body{"commitment": x.inputs[1].Commitment})
}

func rejection(c *client, _ time.Duration) *cut {
	x := open(c, shapleyBody(time.Hour, 2*time.Hour), 2, 1, body{"accept": true}, body{"accept": false}).revealing(1)
	x.outcome, x.flakers = "VOID", []int{1}
	return x
}

func draw(round int64) scenario {
	return func(c *client, _ time.Duration) *cut {
		x := open(c, randomBody(3, round, time.Hour, 2*time.Hour), 3, 3, body{"nonce": "aa"}, body{"nonce": "0b"}, body{"nonce": ""})
		return x.ends("/entropy", 2, nil)
	}
}

func missedCommit(c *client, lead time.Duration) *cut {
	at := after(lead)
	x := near(c, at, at+3600)
	if x == nil || !x.commits(1) {
		return nil
	}
	x.clock, x.from, x.outcome, x.flakers = true, at, "VOID", []int{1}
	x.last.token = x.deal.Tokens[0]
	return x
}

func missedReveal(c *client, lead time.Duration) *cut {
	at := after(lead)
	x := near(c, at, at+1)
	if x == nil || !x.commits(2) || !x.reveals(1) {
		return nil
	}
	x.clock, x.from, x.outcome, x.flakers = true, at+1, "VOID", []int{1}
	x.last.token = x.deal.Tokens[0]
	return x
}

// lateLastCommit and lateLastReveal are complete before their deadline and are
// looked at after it: nobody is missing, so nobody is named.
func lateLastCommit(c *client, lead time.Duration) *cut {
	at := after(lead)
	x := near(c, at, at+3600)
	if x == nil || !x.commits(1) {
		return nil
	}
	x.from = at
	return x.ends("/commit", 1, body{"commitment": x.inputs[1].Commitment})
}

func lateLastReveal(c *client, lead time.Duration) *cut {
	at := after(lead)
	x := near(c, at, at+1)
	if x == nil || !x.commits(2) || !x.reveals(1) {
		return nil
	}
	x.from = at + 1
	return x.revealing(1)
}

// near creates a split of two, or nil where its deadline is over already.
func near(c *client, commitDeadline, revealDeadline int64) *cut {
	c.t.Helper()
	b := timed(splitBody(0, 0), commitDeadline, revealDeadline)
	key := c.key()
	a := c.do("POST", "/v1/deals", key, b)
	if a.status == 400 && strings.Contains(a.errorText(), "is not after now") {
		return nil
	}
	if a.status != 201 {
		c.t.Fatalf("create: %d %s", a.status, a.body)
	}
	return &cut{deal: c.created(key, a), params: b["algorithm_params"].(body), outcome: "COMPUTED",
		inputs: []sealed{seal(c.t, annsValues), seal(c.t, bobsValues)}}
}

func (x *cut) commits(parties int) bool {
	for i := range parties {
		if !x.deal.attempt("commit", i, body{"commitment": x.inputs[i].Commitment}) {
			return false
		}
	}
	return true
}

func (x *cut) reveals(parties int) bool {
	for i := range parties {
		if !x.deal.attempt("reveal", i, body{"input": x.inputs[i].Input, "salt": x.inputs[i].Salt}) {
			return false
		}
	}
	return true
}

// waitUntil waits for a second of the clock.
func waitUntil(t testing.TB, at int64) {
	t.Helper()
	eventually(t, "the clock", patience, func() bool { return time.Now().Unix() >= at })
}
