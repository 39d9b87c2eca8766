package outage

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// insists plays a whole deal, each call under an Idempotency-Key and sent
// twice, so that an effect that is lost or doubled shows.
func insists(t *testing.T, c *e2e.Client, b e2e.Body, state string, inputs ...e2e.Body) *e2e.Dealt {
	t.Helper()
	twice := func(status int, path, token string, sent any) e2e.Answer {
		o := c.Once(path, token, sent)
		a := o.Want(status)
		o.Replays(a)
		return a
	}
	key := c.Key()
	d := c.Created(key, twice(201, "/v1/deals", key, b))
	all := make([]e2e.Sealed, len(inputs))
	for p, input := range inputs {
		all[p] = e2e.Seal(t, input)
		twice(200, d.Path("/commit"), d.Tokens[p], all[p].Act("commit"))
	}
	for p := range inputs {
		twice(200, d.Path("/reveal"), d.Tokens[p], all[p].Act("reveal"))
	}
	if b["algorithm"] == "random.v1" {
		c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	}
	certificate := d.Certified(e2e.Patience)
	v := d.View()
	if v.State != state || v.CertificateID == nil {
		t.Errorf("%s deal: %+v, want %s", b["algorithm"], v, state)
	} else if r := c.Verify(*v.CertificateID); !r.Valid || r.Outcome != state {
		t.Errorf("verification: %+v", r)
	}
	e2e.Independently(t, c, certificate, true)
	return d
}

// everyAlgorithm plays a deal of each algorithm, one that is rejected and one
// whose deadline passes, and requires that the whole database holds exactly
// these.
func everyAlgorithm(t *testing.T, stack *localstack.Stack) {
	t.Helper()
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
	commitBy, revealBy := e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)
	var missed *e2e.Dealt
	for key, lead := c.Key(), 5*time.Second; missed == nil; lead *= 2 {
		missed = c.CreateInTime(key, e2e.Timed(e2e.SplitBody(0, 0), e2e.After(lead), e2e.After(lead)+60))
	}
	insists(t, c, e2e.Timed(e2e.SplitBody(0, 0), commitBy, revealBy), "COMPUTED",
		e2e.Body{"valuations": e2e.Body{"car": 70, "boat": 30}}, e2e.Body{"valuations": e2e.Body{"car": 40, "boat": 60}})
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	insists(t, c, e2e.Timed(e2e.RandomBody(3, past, 0, 0), commitBy, revealBy), "COMPUTED",
		e2e.Body{"nonce": "aa"}, e2e.Body{"nonce": "bb"}, e2e.Body{"nonce": "cc"})
	insists(t, c, e2e.Timed(e2e.ShapleyBody(0, 0), commitBy, revealBy), "COMPUTED", e2e.Body{"accept": true}, e2e.Body{"accept": true})
	insists(t, c, e2e.Timed(e2e.ShapleyBody(0, 0), commitBy, revealBy), "VOID", e2e.Body{"accept": true}, e2e.Body{"accept": false})
	e2e.Eventually(t, "the worker voids the deal whose deadline passed", e2e.Patience, func() bool { return w.Phase(missed) == "VOID" })
	w.Exactly(5, 5)
	w.Converged()
	e2e.Invariants(t, stack)
}

// Redis makes things cheap, and nothing is lost or done twice where it is
// empty, restarted under a request, hung or gone.
func TestRedisUnrest(t *testing.T) {
	for name, unrest := range e2e.Unrests {
		if name == "up" || name == "down" {
			continue // TestRedisIsDownFromTheStart plays the same without one
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := e2e.Own(t, nil)
			defer unrest(t, stack)()
			everyAlgorithm(t, stack)
		})
	}
}

// A deployment whose Redis was never there starts and serves.
func TestRedisIsDownFromTheStart(t *testing.T) {
	t.Parallel()
	everyAlgorithm(t, e2e.Own(t, func(o *localstack.Options) { o.RedisURL = "redis://:secret@127.0.0.1:1/0" }))
}

// A Redis that comes back is used again, without a restart of anything.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	if err := stack.Redis().Stop(); err != nil {
		t.Fatal(err)
	}
	insists(t, c, e2e.Timed(e2e.ShapleyBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)), "COMPUTED", e2e.Body{"accept": true}, e2e.Body{"accept": true})
	if err := stack.Redis().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	redis, key := e2e.Cache(t, stack), c.Key()
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience))
	e2e.Eventually(t, "a copy in Redis", e2e.Patience, func() bool {
		c.Once("/v1/deals", key, b).Want(201)
		n, err := redis.DBSize(t.Context()).Result()
		return err == nil && n > 0
	})
}
