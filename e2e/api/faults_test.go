package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestFaultsAndSettings(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DeadlineWorker: 0} })
	restart := func(env ...string) *e2e.Client {
		t.Helper()
		if err := stack.Restart(t.Context(), localstack.DealAPI, env...); err != nil {
			t.Fatal(err)
		}
		return e2e.NewClient(t, stack.BaseURL())
	}
	key := e2e.NewClient(t, stack.BaseURL()).Key()

	t.Run("a beacon that is down", func(t *testing.T) {
		c := restart("FAIRPACT_BEACON_RELAYS=http://127.0.0.1:1")
		d := c.CreateWith(key, random(2, stack.Chain().RoundAt(time.Now().Unix())-10))
		d.Play(e2e.Body{"nonce": "1"}, e2e.Body{"nonce": "2"})
		c.Refused(502, "BEACON_UNAVAILABLE", "POST", d.Path("/entropy"), d.Tokens[0], nil)
		if v := d.View(); v.State != "REVEALING" || string(v.Result) != "null" {
			t.Errorf("a beacon that is down changed the deal: %+v", v)
		}
		d.C = restart()
		d.C.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
		e2e.RequireIndependentVerdict(t, d.C, d.Certified(e2e.DefaultTimeout), true)
	})

	t.Run("strict beacons", func(t *testing.T) {
		c := restart("FAIRPACT_STRICT_BEACON=true")
		reveal := time.Now().Add(2 * time.Hour).Unix()
		late := stack.Chain().RoundAt(reveal) + 1
		b := e2e.Timed(random(2, late-1), reveal-3600, reveal)
		if a := c.Refused(400, "INVALID_PARAMS", "POST", "/v1/deals", key, b); !strings.Contains(a.ErrorText(), fmt.Sprintf("use round %d", late)) {
			t.Errorf("the error does not name round %d as the one to use: %s", late, a.ErrorText())
		}
		c.Want(201, "POST", "/v1/deals", key, changed(b, "algorithm_params", e2e.Body{"beacon_round": late}))
	})

	t.Run("a limit on keys behind a proxy", func(t *testing.T) {
		c := restart("FAIRPACT_KEYS_PER_MINUTE=1", "FAIRPACT_TRUSTED_PROXIES=127.0.0.0/8")
		c.Want(201, "POST", "/v1/keys", "", nil, "X-Forwarded-For", "198.51.100.7, 192.0.2.1")
		// Only the right-most address counts, because a caller can invent the others.
		a := c.Refused(429, "RATE_LIMITED", "POST", "/v1/keys", "", nil, "X-Forwarded-For", "203.0.113.9, 192.0.2.1")
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("429 without Retry-After, header %v", a.Header)
		}
		c.Want(201, "POST", "/v1/keys", "", nil, "X-Forwarded-For", "192.0.2.2")
		c.CreateWith(key, split()) // the limit applies only to POST keys
	})
}

// A stored input that cannot be decrypted leads to a 503, because the operator can correct the
// cause, such as a wrong server secret. A row with invalid JSON leads to a 500. Neither error shows
// stored data.
func TestUnreadableRows(t *testing.T) {
	c, w := newClient(t), e2e.OpenDB(t, e2e.Shared(t))
	says := func(a e2e.Answer, leaks ...string) {
		t.Helper()
		for _, leak := range append(leaks, "sql", "{") {
			if strings.Contains(a.ErrorText(), leak) {
				t.Errorf("the error contains %q: %s", leak, a.ErrorText())
			}
		}
	}
	x := e2e.Open(c, e2e.Retained(split(), "open", "standard"), 2, 2, e2e.AnnsValues, e2e.BobsValues)
	d := x.Deal
	d.Certified(e2e.DefaultTimeout)
	w.Exec(1, `UPDATE reveals SET sealed = sealed || '\x00' WHERE deal_id = $1 AND party = 1`, d.ID)
	says(c.Refused(503, "UNAVAILABLE", "GET", d.Path("/inputs"), d.Tokens[0], nil), "cipher", "decrypt", "sealed", "reveals", "party 1", x.Inputs[1].Salt)
	w.Exec(1, `UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 1`, d.ID)
	disclosed(t, c, d, x.Inputs)

	broken := "d_" + strings.Repeat("A", len(d.ID)-2)
	w.Exec(1, `INSERT INTO deals SELECT (jsonb_populate_record(d, jsonb_build_object('deal_id', $2::text, 'params', '\x7b'))).* FROM deals d WHERE deal_id = $1`, c.CreateWith(d.Key, split()).ID, broken)
	says(c.Refused(500, "INTERNAL", "GET", "/v1/deals/"+broken, d.Key, nil), "params", "JSON", "deals")
	w.Exec(1, "DELETE FROM deals WHERE deal_id = $1", broken)
}

// A repeat of a running request waits for at most 5 s, and is then refused. After the request has
// finished, a repeat gets the same answer as the request.
func TestRequestStillRunning(t *testing.T) {
	t.Parallel()
	c, w := newClient(t), e2e.OpenDB(t, e2e.Shared(t))
	d := c.Create(split())
	commit := c.NewIdempotentPost(d.Path("/commit"), d.Tokens[0], e2e.Seal(t, e2e.AnnsValues).Act("commit"))
	held := w.HoldDeal(d.ID)
	defer func() { _ = held.Rollback(t.Context()) }()
	// The first call holds the lock of the Idempotency-Key. The lock expires after 4 s, and the second
	// call then takes the lock. The third call is refused after 5 s.
	answers := make(chan e2e.Answer, 3)
	for range cap(answers) {
		go func() {
			a, err := c.Try(t.Context(), "POST", commit.Path, commit.Token, commit.Sent, "Idempotency-Key", commit.Key)
			if err != nil {
				t.Errorf("POST %s: %v, want an answer", commit.Path, err)
			}
			answers <- a
		}()
	}
	if a := <-answers; a.Status != 409 || a.Code() != "IDEMPOTENCY_IN_PROGRESS" {
		t.Errorf("the first answer: %d %s, want 409 IDEMPOTENCY_IN_PROGRESS", a.Status, a.Body)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := commit.Want(200)
	for range cap(answers) - 1 {
		if a := <-answers; a.Status != 200 && a.Code() != "IDEMPOTENCY_IN_PROGRESS" || a.Status == 200 && string(a.Body) != string(one.Body) {
			t.Errorf("another repeat: %d %s, want IDEMPOTENCY_IN_PROGRESS or 200 %s", a.Status, a.Body, one.Body)
		}
	}
}
