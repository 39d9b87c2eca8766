package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// The deployment's choices and what fails outside, as a caller meets them.
func TestFaultsAndChoices(t *testing.T) {
	t.Parallel()
	stack := own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	restart := func(env ...string) *client {
		t.Helper()
		if err := stack.Restart(t.Context(), localstack.DealAPI, env...); err != nil {
			t.Fatal(err)
		}
		return newClient(t, stack.BaseURL())
	}
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	key := newClient(t, stack.BaseURL()).key()

	t.Run("a beacon that gives nothing", func(t *testing.T) {
		c := restart("FAIRPACT_BEACON_RELAYS=http://127.0.0.1:1")
		d := c.createWith(key, randomBody(2, past, time.Hour, 2*time.Hour))
		d.play(body{"nonce": "1"}, body{"nonce": "2"})
		for range 2 {
			c.refused(502, "BEACON_UNAVAILABLE", "POST", d.path("/entropy"), d.Tokens[0], nil)
		}
		if v := d.view(); v.State != "REVEALING" || string(v.Result) != "null" {
			t.Errorf("a beacon out of reach changed the deal: %+v", v)
		}
		// The relays are back: the same call draws.
		d.c = restart()
		d.c.want(200, "POST", d.path("/entropy"), d.Tokens[0], nil)
		independently(t, d.c, d.certified(patience), true)
	})

	t.Run("a beacon that lies", func(t *testing.T) {
		c := restart("FAIRPACT_BEACON_RELAYS=" + liar(t, stack.BeaconURL()))
		d := c.createWith(key, randomBody(2, past-1, time.Hour, 2*time.Hour))
		d.play(body{"nonce": "1"}, body{"nonce": "2"})
		c.refused(502, "BEACON_UNAVAILABLE", "POST", d.path("/entropy"), d.Tokens[0], nil)
		if v := d.view(); v.State != "REVEALING" {
			t.Errorf("a value that does not verify changed the deal: %+v", v)
		}
	})

	t.Run("strict beacons", func(t *testing.T) {
		c := restart("FAIRPACT_STRICT_BEACON=true")
		reveal := time.Now().Add(2 * time.Hour).Unix()
		late := stack.Chain().RoundAt(reveal) + 1
		b := timed(randomBody(2, late-1, 0, 0), reveal-3600, reveal)
		if a := c.refused(400, "INVALID_PARAMS", "POST", "/v1/deals", key, b); !strings.Contains(a.errorText(), fmt.Sprintf("use round %d", late)) {
			t.Errorf("the round to use is not named: %s", a.errorText())
		}
		c.want(201, "POST", "/v1/deals", key, changed(b, "algorithm_params", body{"beacon_round": late}))
	})

	t.Run("a limit on keys", func(t *testing.T) {
		c := restart("FAIRPACT_KEYS_PER_MINUTE=1")
		c.want(201, "POST", "/v1/keys", "", nil)
		// A forwarded hop that no proxy of ours added is somebody's word, not an address.
		a := c.refused(429, "RATE_LIMITED", "POST", "/v1/keys", "", nil, "X-Forwarded-For", "192.0.2.1")
		if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
		c.createWith(key, splitBody(time.Hour, 2*time.Hour)) // limits nothing else
		c = restart("FAIRPACT_KEYS_PER_MINUTE=1", "FAIRPACT_TRUSTED_PROXIES=127.0.0.0/8")
		c.want(201, "POST", "/v1/keys", "", nil, "X-Forwarded-For", "198.51.100.7, 192.0.2.1")
		c.refused(429, "RATE_LIMITED", "POST", "/v1/keys", "", nil, "X-Forwarded-For", "203.0.113.9, 192.0.2.1")
		c.want(201, "POST", "/v1/keys", "", nil, "X-Forwarded-For", "192.0.2.2")
	})

	t.Run("a log that is down", func(t *testing.T) {
		c := restart()
		if err := stack.Stop(localstack.LogServer); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"tree-head", "proof?leaf_index=0", "consistency?first=0"} {
			a := c.refused(503, "LOG_UNAVAILABLE", "GET", "/v1/log/"+path, "", nil, "Origin", "https://example.org")
			if a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("Retry-After") == "" {
				t.Errorf("%s: %v", path, a.header)
			}
		}
		if err := stack.Start(t.Context(), localstack.LogServer); err != nil {
			t.Fatal(err)
		}
	})
}

// A stored input that cannot be read is a fault of the service: a 500 that says
// nothing of it.
func TestInternalFault(t *testing.T) {
	c, w := surfaceClient(t), database(t, shared(t))
	x := open(c, retained(splitBody(time.Hour, 2*time.Hour), "open", "standard"), 2, 2, annsValues, bobsValues)
	d := x.deal
	d.certified(patience)
	w.exec(1, `UPDATE reveals SET sealed = sealed || '\x00' WHERE deal_id = $1 AND party = 1`, d.ID)
	a := c.refused(500, "INTERNAL", "GET", d.path("/inputs"), d.Tokens[0], nil)
	for _, said := range []string{"cipher", "decrypt", "seal", "reveals", "sql", "party 1", x.inputs[1].Salt} {
		if strings.Contains(a.errorText(), said) {
			t.Errorf("the error speaks of %s: %s", said, a.errorText())
		}
	}
	w.exec(1, `UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 1`, d.ID)
	disclosed(t, c, d, x.inputs)
}

// While one request of a key cannot finish, its twins wait a while and are told
// so; when it can, the repeat has the one answer.
func TestRequestStillRunning(t *testing.T) {
	t.Parallel()
	c, w := surfaceClient(t), database(t, shared(t))
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	s := seal(t, annsValues)
	held, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(t.Context()) }()
	if _, err := held.Exec(t.Context(), "SELECT FROM deals WHERE deal_id = $1 FOR UPDATE", d.ID); err != nil {
		t.Fatal(err)
	}
	const twins = 3
	answers := make(chan answer, twins)
	for range twins {
		go func() {
			a, err := c.try(t.Context(), "POST", d.path("/commit"), d.Tokens[0], s.act("commit"), "Idempotency-Key", "twins")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	if a := <-answers; a.status != 409 || a.code() != "IDEMPOTENCY_IN_PROGRESS" {
		t.Errorf("the first to be answered: %d %s", a.status, a.body)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := c.want(200, "POST", d.path("/commit"), d.Tokens[0], s.act("commit"), "Idempotency-Key", "twins")
	for range twins - 1 {
		if a := <-answers; a.status != 200 && a.code() != "IDEMPOTENCY_IN_PROGRESS" || a.status == 200 && string(a.body) != string(one.body) {
			t.Errorf("a twin: %d %s, the answer is %s", a.status, a.body, one.body)
		}
	}
	if v := d.view(); v.State != "COMMITTING" || *v.Parties[0].Commitment != s.Commitment {
		t.Errorf("%+v", v)
	}
}
