package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// entropy is the answer to POST entropy (SPEC 4).
type entropy struct {
	DealID        string `json:"deal_id"`
	State         string
	Result        json.RawMessage
	CertificateID *string `json:"certificate_id"`
}

// Once all parties have revealed, POST entropy draws the winner. Any party's token and the initiator's
// key are accepted. A repeated call returns the same result.
func TestEntropy(t *testing.T) {
	c := newClient(t)
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	d := c.Create(random(2, past))
	for _, credential := range append(d.Tokens, d.Key) {
		c.Refused(409, "REVEALS_MISSING", "POST", d.Path("/entropy"), credential, nil)
	}
	d.Play(e2e.Body{"nonce": "1f"}, e2e.Body{"nonce": "ABC"})
	c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)

	// POST entropy ignores the body, even a body that is not JSON.
	var first entropy
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[1], `{"value": not even JSON`).Into(t, &first)
	v := d.View()
	if first.DealID != d.ID || first.State != "COMPUTED" || first.CertificateID == nil || *first.CertificateID != *v.CertificateID || string(first.Result) != string(v.Result) || v.ComputedAt == nil {
		t.Errorf("POST entropy: %+v, want COMPUTED with the result and certificate of the view %+v", first, v)
	}
	for _, credential := range append(d.Tokens, d.Key) {
		for _, sent := range []any{nil, "[]", `{"value":"00"}`} {
			var again entropy
			c.Want(200, "POST", d.Path("/entropy"), credential, sent, "Idempotency-Key", "the-same").Into(t, &again)
			if string(again.Result) != string(first.Result) || *again.CertificateID != *first.CertificateID {
				t.Errorf("POST entropy with body %v again: %+v, want %+v", sent, again, first)
			}
		}
	}

	var cert struct{ Properties []string }
	e2e.Answer{Body: d.Certified(0)}.Into(t, &cert)
	digest, err := certificate.DeclarationIn(cert.Properties)
	if err != nil || fmt.Sprint(cert.Properties) != "[inputs-committed-before-reveal deterministic-recomputable beacon-verified "+certificate.DeclarationProperty(digest)+" logged]" {
		t.Errorf("the certificate has the properties %v (%v), want those of a random.v1 deal", cert.Properties, err)
	}
}

func TestRoundThatIsNotPublishedYet(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	chain := e2e.BeaconChain(t)
	now := chain.RoundAt(time.Now().Unix())
	played := func(round int64) *e2e.CreatedDeal {
		d := c.Create(random(2, round))
		d.Play(e2e.Body{"nonce": ""}, e2e.Body{"nonce": "00"})
		return d
	}
	for _, round := range []int64{now + 100, farRound(t)} {
		d := played(round)
		a := c.Refused(409, "BEACON_NOT_READY", "POST", d.Path("/entropy"), d.Key, nil)
		seconds, err := strconv.ParseInt(a.Header.Get("Retry-After"), 10, 64)
		if due := chain.RoundTime(round); !strings.Contains(a.ErrorText(), fmt.Sprint(due)) || err != nil || seconds < 1 || seconds > 86400 || due < time.Now().Unix()+86400 && seconds > due-time.Now().Unix()+1 {
			t.Errorf("round %d, due at %d: Retry-After %q and error %s, want 1 to 86400 seconds, not later than the round, and the time in the error", round, due, a.Header.Get("Retry-After"), a.ErrorText())
		}
	}
	soon := now + 2
	d := played(soon)
	e2e.Eventually(t, fmt.Sprintf("round %d is drawn", soon), e2e.DefaultTimeout, func() bool {
		a := c.Do("POST", d.Path("/entropy"), d.Key, nil)
		if a.Status != 200 && a.Code() != "BEACON_NOT_READY" {
			t.Fatalf("POST entropy: %d %s, want 200 or BEACON_NOT_READY", a.Status, a.Body)
		}
		if a.Status == 200 && time.Now().Unix() < chain.RoundTime(soon) {
			t.Errorf("round %d was drawn before %d, when it is due", soon, chain.RoundTime(soon))
		}
		return a.Status == 200
	})
}

// farRound returns a beacon round 200 days ahead, so that a test never reaches the round.
func farRound(t testing.TB) int64 {
	return e2e.BeaconChain(t).RoundAt(time.Now().Unix() + 200*24*3600)
}
