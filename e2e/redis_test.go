package e2e

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// insists plays a whole deal, each call under an Idempotency-Key and sent
// twice, so that an effect that is lost or doubled shows.
func insists(t *testing.T, c *client, b body, state string, inputs ...body) *dealt {
	t.Helper()
	twice := func(status int, path, token string, sent any) answer {
		o := c.once(path, token, sent)
		a := o.want(status)
		o.replays(a)
		return a
	}
	key := c.key()
	d := c.created(key, twice(201, "/v1/deals", key, b))
	all := make([]sealed, len(inputs))
	for p, input := range inputs {
		all[p] = seal(t, input)
		twice(200, d.path("/commit"), d.Tokens[p], all[p].act("commit"))
	}
	for p := range inputs {
		twice(200, d.path("/reveal"), d.Tokens[p], all[p].act("reveal"))
	}
	if b["algorithm"] == "random.v1" {
		c.want(200, "POST", d.path("/entropy"), d.Tokens[0], nil)
	}
	certificate := d.certified(patience)
	v := d.view()
	if v.State != state || v.CertificateID == nil {
		t.Errorf("%s deal: %+v, want %s", b["algorithm"], v, state)
	} else if r := c.verify(*v.CertificateID); !r.Valid || r.Outcome != state {
		t.Errorf("verification: %+v", r)
	}
	independently(t, c, certificate, true)
	return d
}

// everyAlgorithm plays a deal of each algorithm, one that is rejected and one
// whose deadline passes, and requires that the whole database holds exactly
// these.
func everyAlgorithm(t *testing.T, stack *localstack.Stack) {
	t.Helper()
	c, w := newClient(t, stack.BaseURL()), database(t, stack)
	commitBy, revealBy := after(5*patience), after(6*patience)
	missedAt := after(2 * time.Second)
	missed := c.create(timed(splitBody(0, 0), missedAt, missedAt+60))
	insists(t, c, timed(splitBody(0, 0), commitBy, revealBy), "COMPUTED",
		body{"valuations": body{"car": 70, "boat": 30}}, body{"valuations": body{"car": 40, "boat": 60}})
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	insists(t, c, timed(randomBody(3, past, 0, 0), commitBy, revealBy), "COMPUTED",
		body{"nonce": "aa"}, body{"nonce": "bb"}, body{"nonce": "cc"})
	insists(t, c, timed(shapleyBody(0, 0), commitBy, revealBy), "COMPUTED", body{"accept": true}, body{"accept": true})
	insists(t, c, timed(shapleyBody(0, 0), commitBy, revealBy), "VOID", body{"accept": true}, body{"accept": false})
	eventually(t, "the worker voids the deal whose deadline passed", patience, func() bool { return w.phase(missed) == "VOID" })
	w.exactly(5, 5)
	w.converged()
	invariants(t, stack)
}

// Redis makes things cheap, and nothing is lost or done twice where it is
// empty, restarted under a request, hung or gone.
func TestRedisUnrest(t *testing.T) {
	for name, unrest := range unrests {
		if name == "up" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := own(t, nil)
			defer unrest(t, stack)()
			everyAlgorithm(t, stack)
		})
	}
}

// A deployment whose Redis was never there starts and serves.
func TestRedisIsDownFromTheStart(t *testing.T) {
	t.Parallel()
	everyAlgorithm(t, own(t, func(o *localstack.Options) { o.RedisURL = "redis://:secret@127.0.0.1:1/0" }))
}

// A Redis that comes back is used again, without a restart of anything.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	stack := own(t, nil)
	c := newClient(t, stack.BaseURL())
	if err := stack.Redis().Stop(); err != nil {
		t.Fatal(err)
	}
	insists(t, c, timed(shapleyBody(0, 0), after(5*patience), after(6*patience)), "COMPUTED", body{"accept": true}, body{"accept": true})
	if err := stack.Redis().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	redis, key := cache(t, stack), c.key()
	b := timed(splitBody(0, 0), after(5*patience), after(6*patience))
	eventually(t, "a copy in Redis", patience, func() bool {
		c.once("/v1/deals", key, b).want(201)
		n, err := redis.DBSize(t.Context()).Result()
		return err == nil && n > 0
	})
}
