package api

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// The deployment's choices and what fails outside, as a caller meets them.
func TestFaultsAndChoices(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	restart := func(env ...string) *e2e.Client {
		t.Helper()
		if err := stack.Restart(t.Context(), localstack.DealAPI, env...); err != nil {
			t.Fatal(err)
		}
		return e2e.NewClient(t, stack.BaseURL())
	}
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	key := e2e.NewClient(t, stack.BaseURL()).Key()

	t.Run("a beacon that gives nothing", func(t *testing.T) {
		c := restart("FAIRPACT_BEACON_RELAYS=http://127.0.0.1:1")
		d := c.CreateWith(key, e2e.RandomBody(2, past, time.Hour, 2*time.Hour))
		d.Play(e2e.Body{"nonce": "1"}, e2e.Body{"nonce": "2"})
		for range 2 {
			c.Refused(502, "BEACON_UNAVAILABLE", "POST", d.Path("/entropy"), d.Tokens[0], nil)
		}
		if v := d.View(); v.State != "REVEALING" || string(v.Result) != "null" {
			t.Errorf("a beacon out of reach changed the deal: %+v", v)
		}
		// The relays are back: the same call draws.
		d.C = restart()
		d.C.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
		e2e.Independently(t, d.C, d.Certified(e2e.Patience), true)
	})

	t.Run("a beacon that lies", func(t *testing.T) {
		c := restart("FAIRPACT_BEACON_RELAYS=" + liar(t, stack.BeaconURL()))
		d := c.CreateWith(key, e2e.RandomBody(2, past-1, time.Hour, 2*time.Hour))
		d.Play(e2e.Body{"nonce": "1"}, e2e.Body{"nonce": "2"})
		c.Refused(502, "BEACON_UNAVAILABLE", "POST", d.Path("/entropy"), d.Tokens[0], nil)
		if v := d.View(); v.State != "REVEALING" {
			t.Errorf("a value that does not verify changed the deal: %+v", v)
		}
	})

	t.Run("strict beacons", func(t *testing.T) {
		c := restart("FAIRPACT_STRICT_BEACON=true")
		reveal := time.Now().Add(2 * time.Hour).Unix()
		late := stack.Chain().RoundAt(reveal) + 1
		b := e2e.Timed(e2e.RandomBody(2, late-1, 0, 0), reveal-3600, reveal)
		if a := c.Refused(400, "INVALID_PARAMS", "POST", "/v1/deals", key, b); !strings.Contains(a.ErrorText(), fmt.Sprintf("use round %d", late)) {
			t.Errorf("the round to use is not named: %s", a.ErrorText())
		}
		c.Want(201, "POST", "/v1/deals", key, changed(b, "algorithm_params", e2e.Body{"beacon_round": late}))
	})

	t.Run("a limit on keys", func(t *testing.T) {
		c := restart("FAIRPACT_KEYS_PER_MINUTE=1")
		c.Want(201, "POST", "/v1/keys", "", nil)
		// A forwarded hop that no proxy of ours added is a claim, not an address.
		a := c.Refused(429, "RATE_LIMITED", "POST", "/v1/keys", "", nil, "X-Forwarded-For", "192.0.2.1")
		if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
			t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
		}
		c.CreateWith(key, e2e.SplitBody(time.Hour, 2*time.Hour)) // limits nothing else
		c = restart("FAIRPACT_KEYS_PER_MINUTE=1", "FAIRPACT_TRUSTED_PROXIES=127.0.0.0/8")
		c.Want(201, "POST", "/v1/keys", "", nil, "X-Forwarded-For", "198.51.100.7, 192.0.2.1")
		c.Refused(429, "RATE_LIMITED", "POST", "/v1/keys", "", nil, "X-Forwarded-For", "203.0.113.9, 192.0.2.1")
		c.Want(201, "POST", "/v1/keys", "", nil, "X-Forwarded-For", "192.0.2.2")
	})

	t.Run("a log that is down", func(t *testing.T) {
		c := restart()
		if err := stack.Stop(localstack.LogServer); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"tree-head", "proof?leaf_index=0", "consistency?first=0"} {
			a := c.Refused(503, "LOG_UNAVAILABLE", "GET", "/v1/log/"+path, "", nil, "Origin", "https://example.org")
			if a.Header.Get("Access-Control-Allow-Origin") != "*" || a.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %v", path, a.Header)
			}
		}
		if err := stack.Start(t.Context(), localstack.LogServer); err != nil {
			t.Fatal(err)
		}
	})
}

// A stored input that does not open is a fault of the service, which its operator
// can correct: a 503 that says nothing of what is stored.
func TestUnopenedInput(t *testing.T) {
	c, w := surfaceClient(t), e2e.Database(t, e2e.Shared(t))
	x := e2e.Open(c, e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "open", "standard"), 2, 2, e2e.AnnsValues, e2e.BobsValues)
	d := x.Deal
	d.Certified(e2e.Patience)
	w.Exec(1, `UPDATE reveals SET sealed = sealed || '\x00' WHERE deal_id = $1 AND party = 1`, d.ID)
	a := c.Refused(503, "UNAVAILABLE", "GET", d.Path("/inputs"), d.Tokens[0], nil)
	for _, said := range []string{"cipher", "decrypt", "sealed", "reveals", "sql", "party 1", x.Inputs[1].Salt} {
		if strings.Contains(a.ErrorText(), said) {
			t.Errorf("the error speaks of %s: %s", said, a.ErrorText())
		}
	}
	w.Exec(1, `UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 1`, d.ID)
	disclosed(t, c, d, x.Inputs)
}

// A row that cannot be read is a fault of the service: a 500 that says nothing of
// it.
func TestInternalFault(t *testing.T) {
	c, w := surfaceClient(t), e2e.Database(t, e2e.Shared(t))
	key := c.Key()
	d := c.CreateWith(key, e2e.SplitBody(time.Hour, 2*time.Hour))
	broken := "d_" + strings.Repeat("A", len(d.ID)-2)
	w.Exec(1, `INSERT INTO deals SELECT (jsonb_populate_record(d, jsonb_build_object('deal_id', $2::text, 'params', '\x7b'))).* FROM deals d WHERE deal_id = $1`, d.ID, broken)
	a := c.Refused(500, "INTERNAL", "GET", "/v1/deals/"+broken, key, nil)
	for _, said := range []string{"params", "JSON", "sql", "deals", "{"} {
		if strings.Contains(a.ErrorText(), said) {
			t.Errorf("the error speaks of %s: %s", said, a.ErrorText())
		}
	}
	w.Exec(1, "DELETE FROM deals WHERE deal_id = $1", broken)
}

// While one request of a key cannot finish, its twins wait a while and are told
// so; when it can, the repeat has the one answer.
func TestRequestStillRunning(t *testing.T) {
	t.Parallel()
	c, w := surfaceClient(t), e2e.Database(t, e2e.Shared(t))
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	s := e2e.Seal(t, e2e.AnnsValues)
	held := w.HoldDeal(d.ID)
	defer func() { _ = held.Rollback(t.Context()) }()
	const twins = 3
	answers := make(chan e2e.Answer, twins)
	for range twins {
		go func() {
			a, err := c.Try(t.Context(), "POST", d.Path("/commit"), d.Tokens[0], s.Act("commit"), "Idempotency-Key", "twins")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	if a := <-answers; a.Status != 409 || a.Code() != "IDEMPOTENCY_IN_PROGRESS" {
		t.Errorf("the first to be answered: %d %s", a.Status, a.Body)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := c.Want(200, "POST", d.Path("/commit"), d.Tokens[0], s.Act("commit"), "Idempotency-Key", "twins")
	for range twins - 1 {
		if a := <-answers; a.Status != 200 && a.Code() != "IDEMPOTENCY_IN_PROGRESS" || a.Status == 200 && string(a.Body) != string(one.Body) {
			t.Errorf("a twin: %d %s, the answer is %s", a.Status, a.Body, one.Body)
		}
	}
	if v := d.View(); v.State != "COMMITTING" || *v.Parties[0].Commitment != s.Commitment {
		t.Errorf("%+v", v)
	}
}
