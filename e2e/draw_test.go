package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/algorithm"
)

// entropy is the answer to POST entropy (SPEC 4).
type entropy struct {
	DealID        string `json:"deal_id"`
	State         string
	Result        json.RawMessage
	CertificateID *string `json:"certificate_id"`
}

// Entropy is for random.v1, for any party or the initiator's key, after all
// reveals and once the round is out; repeats report the same result.
func TestEntropy(t *testing.T) {
	c := surfaceClient(t)
	past := beaconChain(t).RoundAt(time.Now().Unix()) - 10
	d := c.create(randomBody(2, past, time.Hour, 2*time.Hour))
	missing := func() {
		t.Helper()
		for _, credential := range append(d.Tokens, d.Key) {
			c.refused(409, "REVEALS_MISSING", "POST", d.path("/entropy"), credential, nil)
		}
	}
	one, two := seal(t, body{"nonce": "1f"}), seal(t, body{"nonce": "ABC"})
	missing()
	d.commit(0, one)
	missing()
	d.commit(1, two)
	missing()
	d.reveal(0, one)
	missing()
	var last struct {
		State  string
		Result any
	}
	d.reveal(1, two).into(t, &last)
	if v := d.view(); last.State != "REVEALING" || last.Result != nil || v.State != "REVEALING" || v.RevealsClosedAt == nil || v.ComputedAt != nil || string(v.Result) != "null" {
		t.Errorf("all have revealed: %+v, %+v", last, v)
	}
	c.refused(409, "CERT_NOT_READY", "GET", d.path("/certificate"), d.Tokens[0], nil)

	// The body is not looked at, whatever it is.
	var first entropy
	c.want(200, "POST", d.path("/entropy"), d.Tokens[1], `{"value": not even JSON`).into(t, &first)
	v := d.view()
	if first.DealID != d.ID || first.State != "COMPUTED" || first.CertificateID == nil || *first.CertificateID != *v.CertificateID || string(first.Result) != string(v.Result) || v.ComputedAt == nil {
		t.Errorf("drawn: %+v; %+v", first, v)
	}
	for _, credential := range append(d.Tokens, d.Key) {
		for _, sent := range []any{nil, "", "[]", "{}", `{"value":"00"}`} {
			var again entropy
			c.want(200, "POST", d.path("/entropy"), credential, sent, "Idempotency-Key", "the-same").into(t, &again)
			if string(again.Result) != string(first.Result) || *again.CertificateID != *first.CertificateID {
				t.Errorf("again: %+v, first: %+v", again, first)
			}
		}
	}

	// The beacon's value is that of the declared round, and the result is its.
	var result struct{ Beacon algorithm.Beacon }
	if err := json.Unmarshal(first.Result, &result); err != nil {
		t.Fatal(err)
	}
	drawn(t, result.Beacon, past)
	random, _ := algorithm.Lookup(algorithm.Random)
	recomputed, err := random.Compute([]string{"party 0", "party 1"}, map[string]any{"beacon_round": past}, []map[string]any{{"nonce": "1f"}, {"nonce": "ABC"}}, &result.Beacon)
	if err != nil || string(canonical(t, first.Result)) != string(recomputed) {
		t.Errorf("result %s, recomputed %s: %v", first.Result, recomputed, err)
	}
	var cert struct{ Properties []string }
	answer{body: d.certified(0)}.into(t, &cert)
	if fmt.Sprint(cert.Properties) != "[inputs-committed-before-reveal deterministic-recomputable beacon-verified logged]" {
		t.Errorf("properties %v", cert.Properties)
	}
}

// A round that is not out yet is a 409 that says when it is due; when it is out
// the same call draws.
func TestRoundThatIsNotOutYet(t *testing.T) {
	t.Parallel()
	c := surfaceClient(t)
	chain := beaconChain(t)
	played := func(round int64) *dealt {
		d := c.create(randomBody(2, round, time.Hour, 2*time.Hour))
		d.play(body{"nonce": ""}, body{"nonce": "00"})
		return d
	}
	// A chain's rounds never end; those that no clock reaches are never due.
	for _, round := range []int64{chain.RoundAt(time.Now().Unix()) + 100, 1 << 40, 1<<53 - 1} {
		d := played(round)
		a := c.refused(409, "BEACON_NOT_READY", "POST", d.path("/entropy"), d.Key, nil)
		seconds, err := strconv.ParseInt(a.header.Get("Retry-After"), 10, 64)
		if due := chain.RoundTime(round); !strings.Contains(a.errorText(), fmt.Sprint(due)) || err != nil || seconds < 1 || seconds > 86400 || due < time.Now().Unix()+86400 && seconds > due-time.Now().Unix()+1 {
			t.Errorf("round %d, due at %d: Retry-After %q, %s", round, due, a.header.Get("Retry-After"), a.errorText())
		}
		if v := d.view(); v.State != "REVEALING" {
			t.Errorf("%+v", v)
		}
	}
	soon := chain.RoundAt(time.Now().Unix()) + 2
	d := played(soon)
	eventually(t, "the round", patience, func() bool {
		a := c.do("POST", d.path("/entropy"), d.Key, nil)
		if a.status != 200 && a.code() != "BEACON_NOT_READY" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a.status == 200 && time.Now().Unix() < chain.RoundTime(soon) {
			t.Error("drawn before the round was due")
		}
		return a.status == 200
	})
}

// VOID and CANCELLED deals have no draw.
func TestNoDrawOfADealThatEnded(t *testing.T) {
	t.Parallel()
	c := surfaceClient(t)
	d := c.create(randomBody(2, 1, time.Hour, 2*time.Hour))
	c.want(200, "POST", d.path("/cancel"), d.Key, nil)
	c.refused(409, "DEAL_ENDED", "POST", d.path("/entropy"), d.Key, nil)
	d = c.create(changed(randomBody(2, 1, 0, time.Hour), "commit_deadline", after(time.Second)))
	eventually(t, "the deadline", patience, func() bool { return d.view().State == "VOID" })
	c.refused(409, "DEAL_ENDED", "POST", d.path("/entropy"), d.Tokens[0], nil)
}

// drawn holds a beacon to the development chain's own signature of the round.
func drawn(t testing.TB, b algorithm.Beacon, round int64) {
	t.Helper()
	chain := beaconChain(t)
	signature, err := hexBytes(b.Signature)
	if err != nil {
		t.Fatal(err)
	}
	randomness, err := chain.Verify(round, signature)
	if err != nil || b.Round != round || b.ChainHash != chain.Hash || b.Randomness != fmt.Sprintf("%x", randomness) {
		t.Errorf("beacon %+v of round %d: %v", b, round, err)
	}
}
