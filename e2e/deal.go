package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// After is a deadline at least d away.
func After(d time.Duration) int64 { return time.Now().Add(d + time.Second - 1).Unix() }

func Timed(b Body, commitDeadline, revealDeadline int64) Body {
	b["commit_deadline"], b["reveal_deadline"] = commitDeadline, revealDeadline
	return b
}

// CreateInTime creates a deal, or returns nil if its deadline has passed.
func (c *Client) CreateInTime(key string, b Body) *Dealt {
	c.T.Helper()
	a := c.Do("POST", "/v1/deals", key, b)
	if a.Status == 400 && strings.Contains(a.ErrorText(), "is not after now") {
		return nil
	}
	if a.Status != 201 {
		c.T.Fatalf("create: %d %s", a.Status, a.Body)
	}
	return c.Created(key, a)
}

// Trio creates a split of three parties, or returns nil if its deadline has passed.
func (c *Client) Trio(key string, commitDeadline, revealDeadline int64) *Dealt {
	c.T.Helper()
	b := Timed(SplitBody(0, 0), commitDeadline, revealDeadline)
	b["party_labels"] = []string{"ann", "bob", "cem"}
	return c.CreateInTime(key, b)
}

// Act is the body of a commit or a reveal.
func (s Sealed) Act(action string) Body {
	if action == "commit" {
		return Body{"commitment": s.Commitment}
	}
	return Body{"input": s.Input, "salt": s.Salt}
}

// Attempt sends a commit or reveal that may come late, and reports whether it was
// accepted. SPEC 3: a missed deadline is the only other answer.
func (d *Dealt) Attempt(action string, party int, b Body) bool {
	d.C.T.Helper()
	a := d.C.Do("POST", d.Path("/"+action), d.Tokens[party], b)
	if a.Status != 200 && (a.Status != 409 || a.Code() != "DEADLINE_PASSED") {
		d.C.T.Fatalf("%s of party %d: %d %s", action, party, a.Status, a.Body)
	}
	return a.Status == 200
}

type Scenario func(c *Client, lead time.Duration) *Cut

// Cut is a deal one step before the moment at which a process will be killed.
type Cut struct {
	Deal   *Dealt // its calls go to a deal-api that is not killed
	Params Body
	Inputs []Sealed

	// last is the call that leads to the crash point.
	Last struct{ Action, Token, Body string }
	// clock tells that the clock ends the deal, at from (unix seconds), and that
	// the last call only looks at it then. Otherwise from is a deadline that must
	// pass before the recovery, 0 where there is none.
	Clock bool
	From  int64

	Outcome string // COMPUTED or VOID, once all is done
	Flakers []int
}

// Call makes the last call through any deal-api, always under the same
// Idempotency-Key.
func (x *Cut) Call(via *Client) (Answer, error) {
	method := http.MethodPost
	if x.Last.Action == "" {
		method = http.MethodGet
	}
	return via.Try(via.T.Context(), method, x.Deal.Path(x.Last.Action), x.Last.Token, x.Last.Body, "Idempotency-Key", "last-"+x.Deal.ID)
}

func (x *Cut) Ends(action string, party int, b Body) *Cut {
	text, err := json.Marshal(b)
	if err != nil {
		x.Deal.C.T.Fatal(err)
	}
	x.Last.Action, x.Last.Token, x.Last.Body = action, x.Deal.Tokens[party], string(text)
	return x
}

func (x *Cut) Revealing(party int) *Cut {
	return x.Ends("/reveal", party, Body{"input": x.Inputs[party].Input, "salt": x.Inputs[party].Salt})
}

// Open creates a deal and makes the commits and then the reveals of the first so
// many parties.
func Open(c *Client, b Body, commits, reveals int, inputs ...Body) *Cut {
	c.T.Helper()
	x := &Cut{Deal: c.Create(b), Params: b["algorithm_params"].(Body), Outcome: "COMPUTED"}
	for _, in := range inputs {
		x.Inputs = append(x.Inputs, Seal(c.T, in))
	}
	for i := range commits {
		x.Deal.Commit(i, x.Inputs[i])
	}
	for i := range reveals {
		x.Deal.Reveal(i, x.Inputs[i])
	}
	return x
}

var (
	AnnsValues = Body{"valuations": Body{"car": 70, "boat": 30}}
	BobsValues = Body{"valuations": Body{"car": 40, "boat": 60}}
)

// The scenarios. lead is how far away at least the first deadline is; nil says
// that it came before the deal was made.

func LastReveal(c *Client, _ time.Duration) *Cut {
	return Open(c, SplitBody(time.Hour, 2*time.Hour), 2, 1, AnnsValues, BobsValues).Revealing(1)
}

func Rejection(c *Client, _ time.Duration) *Cut {
	x := Open(c, ShapleyBody(time.Hour, 2*time.Hour), 2, 1, Body{"accept": true}, Body{"accept": false}).Revealing(1)
	x.Outcome, x.Flakers = "VOID", []int{1}
	return x
}

func Draw(round int64) Scenario {
	return func(c *Client, _ time.Duration) *Cut {
		x := Open(c, RandomBody(3, round, time.Hour, 2*time.Hour), 3, 3, Body{"nonce": "aa"}, Body{"nonce": "0b"}, Body{"nonce": ""})
		return x.Ends("/entropy", 2, nil)
	}
}

func MissedCommit(c *Client, lead time.Duration) *Cut {
	at := After(lead)
	x := Near(c, at, at+3600)
	if x == nil || !x.Commits(1) {
		return nil
	}
	x.Clock, x.From, x.Outcome, x.Flakers = true, at, "VOID", []int{1}
	x.Last.Token = x.Deal.Tokens[0]
	return x
}

func MissedReveal(c *Client, lead time.Duration) *Cut {
	at := After(lead)
	x := Near(c, at, at+1)
	if x == nil || !x.Commits(2) || !x.Reveals(1) {
		return nil
	}
	x.Clock, x.From, x.Outcome, x.Flakers = true, at+1, "VOID", []int{1}
	x.Last.Token = x.Deal.Tokens[0]
	return x
}

// Near creates a split of two, or nil where its deadline is over already.
func Near(c *Client, commitDeadline, revealDeadline int64) *Cut {
	c.T.Helper()
	b := Timed(SplitBody(0, 0), commitDeadline, revealDeadline)
	d := c.CreateInTime(c.Key(), b)
	if d == nil {
		return nil
	}
	return &Cut{Deal: d, Params: b["algorithm_params"].(Body), Outcome: "COMPUTED",
		Inputs: []Sealed{Seal(c.T, AnnsValues), Seal(c.T, BobsValues)}}
}

func (x *Cut) Commits(parties int) bool {
	for i := range parties {
		if !x.Deal.Attempt("commit", i, Body{"commitment": x.Inputs[i].Commitment}) {
			return false
		}
	}
	return true
}

func (x *Cut) Reveals(parties int) bool {
	for i := range parties {
		if !x.Deal.Attempt("reveal", i, Body{"input": x.Inputs[i].Input, "salt": x.Inputs[i].Salt}) {
			return false
		}
	}
	return true
}

// WaitUntil waits for a second of the clock.
func WaitUntil(t testing.TB, at int64) {
	t.Helper()
	Eventually(t, "the clock", Patience, func() bool { return time.Now().Unix() >= at })
}

func Decoded(t *testing.T, text []byte) (v map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func Encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Played plays a deal with as much time as the machine needs.
func Played(t *testing.T, c *Client, play Scenario) *Cut {
	t.Helper()
	for lead := time.Second; lead < Patience; lead *= 2 {
		if x := play(c, lead); x != nil {
			return x
		}
	}
	t.Fatal("no deal can be made before its deadline")
	return nil
}

// Nonces commits and reveals a random.v1 deal whose round was out long ago.
func (c *Client) Nonces(chain interface{ RoundAt(int64) int64 }, commitDeadline, revealDeadline int64) (d *Dealt, inTime bool) {
	c.T.Helper()
	d = c.Create(Timed(RandomBody(2, chain.RoundAt(time.Now().Unix())-60, 0, 0), commitDeadline, revealDeadline))
	s := Seal(c.T, Body{"nonce": "c0ffee"})
	for _, action := range []string{"commit", "reveal"} {
		for p := range d.Tokens {
			if !d.Attempt(action, p, s.Act(action)) {
				return d, false
			}
		}
	}
	return d, true
}
