package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/attestation"
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
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	d := c.Create(e2e.RandomBody(2, past, time.Hour, 2*time.Hour))
	missing := func() {
		t.Helper()
		for _, credential := range append(d.Tokens, d.Key) {
			c.Refused(409, "REVEALS_MISSING", "POST", d.Path("/entropy"), credential, nil)
		}
	}
	one, two := e2e.Seal(t, e2e.Body{"nonce": "1f"}), e2e.Seal(t, e2e.Body{"nonce": "ABC"})
	missing()
	d.Commit(0, one)
	missing()
	d.Commit(1, two)
	missing()
	d.Reveal(0, one)
	missing()
	var last struct {
		State  string
		Result any
	}
	d.Reveal(1, two).Into(t, &last)
	if v := d.View(); last.State != "REVEALING" || last.Result != nil || v.State != "REVEALING" || v.RevealsClosedAt == nil || v.ComputedAt != nil || string(v.Result) != "null" {
		t.Errorf("all have revealed: %+v, %+v", last, v)
	}
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)

	// The body is not looked at, whatever it is.
	var first entropy
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[1], `{"value": not even JSON`).Into(t, &first)
	v := d.View()
	if first.DealID != d.ID || first.State != "COMPUTED" || first.CertificateID == nil || *first.CertificateID != *v.CertificateID || string(first.Result) != string(v.Result) || v.ComputedAt == nil {
		t.Errorf("drawn: %+v; %+v", first, v)
	}
	for _, credential := range append(d.Tokens, d.Key) {
		for _, sent := range []any{nil, "", "[]", "{}", `{"value":"00"}`} {
			var again entropy
			c.Want(200, "POST", d.Path("/entropy"), credential, sent, "Idempotency-Key", "the-same").Into(t, &again)
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
	e2e.Answer{Body: d.Certified(0)}.Into(t, &cert)
	digest, err := attestation.DigestIn(cert.Properties)
	if err != nil || fmt.Sprint(cert.Properties) != "[inputs-committed-before-reveal deterministic-recomputable beacon-verified "+attestation.Property(digest)+" logged]" {
		t.Errorf("properties %v", cert.Properties)
	}
}

// A round that is not out yet is a 409 that says when it is due; when it is out
// the same call draws.
func TestRoundThatIsNotOutYet(t *testing.T) {
	t.Parallel()
	c := surfaceClient(t)
	chain := e2e.BeaconChain(t)
	played := func(round int64) *e2e.Dealt {
		d := c.Create(e2e.RandomBody(2, round, time.Hour, 2*time.Hour))
		d.Play(e2e.Body{"nonce": ""}, e2e.Body{"nonce": "00"})
		return d
	}
	// A chain's rounds never end; those that no clock reaches are never due.
	for _, round := range []int64{chain.RoundAt(time.Now().Unix()) + 100, e2e.FarRound(t)} {
		d := played(round)
		a := c.Refused(409, "BEACON_NOT_READY", "POST", d.Path("/entropy"), d.Key, nil)
		seconds, err := strconv.ParseInt(a.Header.Get("Retry-After"), 10, 64)
		if due := chain.RoundTime(round); !strings.Contains(a.ErrorText(), fmt.Sprint(due)) || err != nil || seconds < 1 || seconds > 86400 || due < time.Now().Unix()+86400 && seconds > due-time.Now().Unix()+1 {
			t.Errorf("round %d, due at %d: Retry-After %q, %s", round, due, a.Header.Get("Retry-After"), a.ErrorText())
		}
		if v := d.View(); v.State != "REVEALING" {
			t.Errorf("%+v", v)
		}
	}
	soon := chain.RoundAt(time.Now().Unix()) + 2
	d := played(soon)
	e2e.Eventually(t, "the round", e2e.Patience, func() bool {
		a := c.Do("POST", d.Path("/entropy"), d.Key, nil)
		if a.Status != 200 && a.Code() != "BEACON_NOT_READY" {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if a.Status == 200 && time.Now().Unix() < chain.RoundTime(soon) {
			t.Error("drawn before the round was due")
		}
		return a.Status == 200
	})
}

// VOID and CANCELLED deals have no draw.
func TestNoDrawOfADealThatEnded(t *testing.T) {
	t.Parallel()
	c := surfaceClient(t)
	d := c.Create(e2e.RandomBody(2, 1, time.Hour, 2*time.Hour))
	c.Want(200, "POST", d.Path("/cancel"), d.Key, nil)
	c.Refused(409, "DEAL_ENDED", "POST", d.Path("/entropy"), d.Key, nil)
	d = c.Create(changed(e2e.RandomBody(2, 1, 0, time.Hour), "commit_deadline", e2e.After(time.Second)))
	e2e.Eventually(t, "the deadline", e2e.Patience, func() bool { return d.View().State == "VOID" })
	c.Refused(409, "DEAL_ENDED", "POST", d.Path("/entropy"), d.Tokens[0], nil)
}

// drawn holds a beacon to the development chain's own signature of the round.
func drawn(t testing.TB, b algorithm.Beacon, round int64) {
	t.Helper()
	chain := e2e.BeaconChain(t)
	signature, err := hexBytes(b.Signature)
	if err != nil {
		t.Fatal(err)
	}
	randomness, err := chain.Verify(round, signature)
	if err != nil || b.Round != round || b.ChainHash != chain.Hash || b.Randomness != fmt.Sprintf("%x", randomness) {
		t.Errorf("beacon %+v of round %d: %v", b, round, err)
	}
}
