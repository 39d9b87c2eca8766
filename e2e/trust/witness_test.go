package trust

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/translog"
)

// A deal becomes CERTIFIED when both witnesses have cosigned a checkpoint that covers the deal's
// certificate. The certificate stays the same, except for log_proof. While a witness is down, a deal
// still gets its certificate, but stays COMPUTED. A VOID deal stays VOID.
func TestWitnessesCertify(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Witnesses = 2 })
	c := e2e.NewClient(t, stack.BaseURL())
	play := func() (d *e2e.CreatedDeal, payload string) {
		t.Helper()
		d = e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal
		return d, signedPart(t, d)
	}
	first, payload := play()
	e2e.Eventually(t, "CERTIFIED", e2e.DefaultTimeout, func() bool { return first.View().State == "CERTIFIED" })
	if after := signedPart(t, first); after != payload {
		t.Errorf("the certificate changed from\n%s\nto\n%s", payload, after)
	}

	var shown struct{ State string }
	c.Tool("get_deal", e2e.Body{"deal_id": first.ID, "invite_token": first.Tokens[1]}).Into(t, &shown)
	if shown.State != "CERTIFIED" {
		t.Errorf("get_deal shows the state %s, want CERTIFIED", shown.State)
	}
	text, err := os.ReadFile(stack.PolicyFile())
	if err != nil {
		t.Fatal(err)
	}
	if published := c.Want(200, "GET", "/v1/log/policy", "", nil).Body; string(published) != string(text) {
		t.Errorf("the published policy is %s", published)
	}
	policy, err := checkpoint.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	cosigned := c.Want(200, "GET", "/v1/log/checkpoint", "", nil).Body
	if _, names, err := policy.Verify(cosigned); err != nil || len(names) != 2 {
		t.Errorf("the checkpoint is cosigned by %v, want both witnesses (%v):\n%s", names, err, cosigned)
	}

	bundleIs(t, c, first, text, 0, "OK   witnesses")

	// While witness 2 is down, the second deal still ends and gets its certificate. The deal does not
	// become CERTIFIED, even after witness 1 has cosigned a checkpoint that covers the deal's leaf.
	stack.Witness(2, false)
	second, _ := play()
	leaf := leafOf(t, second.Certified(e2e.DefaultTimeout))
	e2e.Eventually(t, "the other witness cosigns it", e2e.DefaultTimeout, func() bool {
		at, names, err := policy.Verify(c.Want(200, "GET", "/checkpoint", "", nil).Body)
		return err != nil && at.Size > leaf && len(names) == 1
	})
	if state := second.View().State; state != "COMPUTED" {
		t.Errorf("the deal is %s with one witness of two, want COMPUTED", state)
	}
	bundleIs(t, c, second, text, 1, "FAIL witnesses")
	bundleIs(t, c, first, text, 0, "OK   witnesses") // an older checkpoint with both cosignatures covers the first deal
	stack.Witness(2, true)
	e2e.Eventually(t, "CERTIFIED", 2*e2e.DefaultTimeout, func() bool { return second.View().State == "CERTIFIED" })
	bundleIs(t, c, second, text, 0, "OK   witnesses")
	if state := first.View().State; state != "CERTIFIED" {
		t.Errorf("the first deal is %s again, want CERTIFIED", state)
	}

	// A VOID deal also has a leaf in the log, but never becomes CERTIFIED.
	rejected := e2e.Open(c, e2e.ShapleyBody(time.Hour, 2*time.Hour), 2, 1, e2e.Body{"accept": true}, e2e.Body{"accept": false})
	rejected.Deal.Reveal(1, rejected.Inputs[1])
	leaf = leafOf(t, rejected.Deal.Certified(e2e.DefaultTimeout))
	var status translog.Status
	e2e.Eventually(t, "its leaf is covered", 2*e2e.DefaultTimeout, func() bool {
		c.Want(200, "GET", "/v1/log/status", "", nil).Into(t, &status)
		return *status.CertifiedSize > leaf
	})
	if state := rejected.Deal.View().State; state != "VOID" {
		t.Errorf("the VOID deal shows %s, want VOID", state)
	}
}

func signedPart(t *testing.T, d *e2e.CreatedDeal) string {
	t.Helper()
	text, err := e2e.WithoutProof(d.Certified(e2e.DefaultTimeout))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func leafOf(t *testing.T, text []byte) int64 {
	t.Helper()
	leaf, err := e2e.Decoded(t, text)["log_proof"].(e2e.Body)["leaf_index"].(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}
