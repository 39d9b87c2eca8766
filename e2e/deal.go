package e2e

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// After returns the current unix time plus d, rounded up to a whole second.
func After(d time.Duration) int64 { return time.Now().Add(d + time.Second - 1).Unix() }

// Timed sets both deadlines of a creation body.
func Timed(b Body, commitDeadline, revealDeadline int64) Body {
	b["commit_deadline"], b["reveal_deadline"] = commitDeadline, revealDeadline
	return b
}

// CreateInTime creates a deal. It returns nil if the service refuses because a deadline
// has already passed.
func (c *Client) CreateInTime(key string, b Body) *CreatedDeal {
	c.T.Helper()
	a := c.Do("POST", "/v1/deals", key, b)
	if a.Status == 400 && strings.Contains(a.ErrorText(), "is in the past") {
		return nil
	}
	if a.Status != 201 {
		c.T.Fatalf("create a deal: %d %s, want 201", a.Status, a.Body)
	}
	return c.Created(key, a)
}

// Attempt sends a commit or reveal that may be late, and reports whether it was
// accepted. The only allowed refusal is DEADLINE_PASSED (SPEC 3).
func (d *CreatedDeal) Attempt(action string, party int, b Body) bool {
	d.C.T.Helper()
	a := d.C.Do("POST", d.Path("/"+action), d.Tokens[party], b)
	if a.Status != 200 && (a.Status != 409 || a.Code() != "DEADLINE_PASSED") {
		d.C.T.Fatalf("%s of party %d: %d %s, want 200 or 409 DEADLINE_PASSED", action, party, a.Status, a.Body)
	}
	return a.Status == 200
}

// Scenario makes all calls of a deal except the last. lead is the minimum time to the
// first deadline. Scenario returns nil if a deadline passes before these calls are done.
type Scenario func(c *Client, lead time.Duration) *UnfinishedDeal

// UnfinishedDeal is a deal that lacks only its last call. Crash tests kill a process during that
// call.
type UnfinishedDeal struct {
	Deal   *CreatedDeal // Deal.C calls a deal-api that the crash tests never kill
	Params Body
	Inputs []Sealed

	// Last is the last call: a POST, or GET /v1/deals/{id} if Action is empty.
	Last struct{ Action, Token, Body string }
	// EndsByDeadline is true if a deadline ends the deal. The last call then only reads the deal.
	EndsByDeadline bool
	// From is a time in unix seconds. If EndsByDeadline is true, From is the deadline that ends the
	// deal. Otherwise From must pass between the crash and the recovery; 0 means no wait.
	From int64

	Outcome string // the final state: COMPUTED or VOID
	Flakers []int
}

// Call makes the last call through the given client. Repeated calls send the same Idempotency-Key.
func (x *UnfinishedDeal) Call(via *Client) (Answer, error) {
	method := http.MethodPost
	if x.Last.Action == "" {
		method = http.MethodGet
	}
	return via.Try(via.T.Context(), method, x.Deal.Path(x.Last.Action), x.Last.Token, x.Last.Body, "Idempotency-Key", "last-"+x.Deal.ID)
}

// SetLastCall sets x.Last, the deal's last call, to a POST by a party.
func (x *UnfinishedDeal) SetLastCall(action string, party int, b Body) *UnfinishedDeal {
	text, err := json.Marshal(b)
	if err != nil {
		x.Deal.C.T.Fatal(err)
	}
	x.Last.Action, x.Last.Token, x.Last.Body = action, x.Deal.Tokens[party], string(text)
	return x
}

// Revealing sets x.Last, the deal's last call, to the reveal of a party.
func (x *UnfinishedDeal) Revealing(party int) *UnfinishedDeal {
	return x.SetLastCall("/reveal", party, x.Inputs[party].Act("reveal"))
}

// Open creates a deal and seals the given inputs, one for each party in order. Parties
// 0 to commits-1 then commit, and parties 0 to reveals-1 reveal.
func Open(c *Client, b Body, commits, reveals int, inputs ...Body) *UnfinishedDeal {
	c.T.Helper()
	x := &UnfinishedDeal{Deal: c.Create(b), Params: b["algorithm_params"].(Body), Outcome: "COMPUTED"}
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

func LastReveal(c *Client, _ time.Duration) *UnfinishedDeal {
	return Open(c, SplitBody(time.Hour, 2*time.Hour), 2, 1, AnnsValues, BobsValues).Revealing(1)
}

func Rejection(c *Client, _ time.Duration) *UnfinishedDeal {
	x := Open(c, ShapleyBody(time.Hour, 2*time.Hour), 2, 1, Body{"accept": true}, Body{"accept": false}).Revealing(1)
	x.Outcome, x.Flakers = "VOID", []int{1}
	return x
}

func Draw(round int64) Scenario {
	return func(c *Client, _ time.Duration) *UnfinishedDeal {
		x := Open(c, RandomBody(3, round, time.Hour, 2*time.Hour), 3, 3, Body{"nonce": "aa"}, Body{"nonce": "0b"}, Body{"nonce": ""})
		return x.SetLastCall("/entropy", 2, nil)
	}
}

func MissedCommit(c *Client, lead time.Duration) *UnfinishedDeal {
	at := After(lead)
	x := Near(c, at, at+3600)
	if x == nil || !x.Commits(1) {
		return nil
	}
	x.EndsByDeadline, x.From, x.Outcome, x.Flakers = true, at, "VOID", []int{1}
	x.Last.Token = x.Deal.Tokens[0]
	return x
}

func MissedReveal(c *Client, lead time.Duration) *UnfinishedDeal {
	at := After(lead)
	x := Near(c, at, at+1)
	if x == nil || !x.Commits(2) || !x.Reveals(1) {
		return nil
	}
	x.EndsByDeadline, x.From, x.Outcome, x.Flakers = true, at+1, "VOID", []int{1}
	x.Last.Token = x.Deal.Tokens[0]
	return x
}

// Near creates a split.v1 deal of Ann and Bob with the given deadlines. It returns nil if a deadline
// has already passed.
func Near(c *Client, commitDeadline, revealDeadline int64) *UnfinishedDeal {
	c.T.Helper()
	b := Timed(SplitBody(0, 0), commitDeadline, revealDeadline)
	d := c.CreateInTime(c.Key(), b)
	if d == nil {
		return nil
	}
	return &UnfinishedDeal{Deal: d, Params: b["algorithm_params"].(Body), Outcome: "COMPUTED",
		Inputs: []Sealed{Seal(c.T, AnnsValues), Seal(c.T, BobsValues)}}
}

// Timelocked returns the request body of a commit with the party's opening, sealed for the round that
// follows from the deadline.
func (s Sealed) Timelocked(chain drand.Chain, d *CreatedDeal, party int, commitDeadline int64) Body {
	d.C.T.Helper()
	seal, err := s.Timelock(chain, d.ID, party, commitDeadline)
	Must(d.C.T, err)
	b := s.Act("commit")
	b["seal"] = seal
	return b
}

// Timelock returns the seal that Timelocked sends.
func (s Sealed) Timelock(chain drand.Chain, dealID string, party int, commitDeadline int64) (string, error) {
	text, err := canon.Marshal(s.Input)
	if err != nil {
		return "", err
	}
	input, err := canon.ParseObject(text)
	if err != nil {
		return "", err
	}
	var random timelock.Random
	_, _ = rand.Read(random[:])
	opening := timelock.Opening{DealID: dealID, Party: int64(party), Input: input, Salt: s.Salt}
	return timelock.Seal(chain, timelock.RoundOf(chain, commitDeadline), opening.Plaintext(), random), nil
}

// Commits and Reveals send the commit or reveal of each party from 0 to `parties`-1. They stop at
// the first refusal because of a deadline, and report whether all parties were in time.
func (x *UnfinishedDeal) Commits(parties int) bool { return x.act("commit", parties) }
func (x *UnfinishedDeal) Reveals(parties int) bool { return x.act("reveal", parties) }

func (x *UnfinishedDeal) act(action string, parties int) bool {
	for i := range parties {
		if !x.Deal.Attempt(action, i, x.Inputs[i].Act(action)) {
			return false
		}
	}
	return true
}

// WaitUntil waits until this machine's clock has reached a unix time.
func WaitUntil(t testing.TB, at int64) {
	t.Helper()
	Eventually(t, "the clock", DefaultTimeout, func() bool { return time.Now().Unix() >= at })
}

// InTime repeats act until it reports that its calls were done before their deadline. Each attempt
// doubles the time to the deadline, so a slow machine needs longer and does not fail the test.
func InTime(t testing.TB, lead time.Duration, act func(lead time.Duration) bool) {
	t.Helper()
	for ; lead <= DefaultTimeout; lead *= 2 {
		if act(lead) {
			return
		}
	}
	t.Fatalf("the calls were not done before their deadline, with deadlines up to %s away", DefaultTimeout)
}

// Played repeats a scenario until its calls are done before the deadline.
func Played(t testing.TB, c *Client, play Scenario) (x *UnfinishedDeal) {
	t.Helper()
	InTime(t, time.Second, func(lead time.Duration) bool {
		x = play(c, lead)
		return x != nil
	})
	return x
}

// RevealedRandomDeal creates a random.v1 deal of two parties, whose beacon round is already
// published. It commits and reveals for both parties. inTime is false if a commit or reveal was
// refused because its deadline had passed.
func (c *Client) RevealedRandomDeal(chain interface{ RoundAt(int64) int64 }, commitDeadline, revealDeadline int64) (d *CreatedDeal, inTime bool) {
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

// ComputedDeal creates a split.v1 deal of Ann and Bob and brings it to COMPUTED.
func (c *Client) ComputedDeal() *CreatedDeal {
	c.T.Helper()
	d := c.Create(SplitBody(time.Hour, 2*time.Hour))
	d.Play(AnnsValues, BobsValues)
	return d
}
