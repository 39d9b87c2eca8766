package trust

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/translog"
)

// A deal is CERTIFIED once two of two witnesses have cosigned a checkpoint that
// covers it, and not before; a dead witness delays that and nothing else. The
// certificate stays the same bytes, and a VOID deal stays VOID.
func TestWitnessesCertify(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Witnesses = 2 })
	c := e2e.NewClient(t, stack.BaseURL())
	play := func() (d *e2e.Dealt, payload string) {
		t.Helper()
		d = e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal
		return d, signedPart(t, d.Certified(e2e.Patience))
	}
	first, payload := play()
	e2e.Eventually(t, "CERTIFIED", e2e.Patience, func() bool { return first.View().State == "CERTIFIED" })
	if after := signedPart(t, first.Certified(e2e.Patience)); after != payload {
		t.Errorf("the certificate was\n%s\nand is\n%s", payload, after)
	}

	// Over MCP the deal shows the same, and the policy that the service publishes is
	// met by what it serves.
	var told struct{ State string }
	c.Tool("get_deal", e2e.Body{"deal_id": first.ID, "invite_token": first.Tokens[1]}).Into(t, &told)
	if told.State != "CERTIFIED" {
		t.Errorf("get_deal shows %s", told.State)
	}
	text, err := os.ReadFile(stack.PolicyFile())
	if err != nil {
		t.Fatal(err)
	}
	if published := c.Want(200, "GET", "/v1/log/policy", "", nil).Body; string(published) != string(text) {
		t.Errorf("the policy is published as %s", published)
	}
	policy, err := checkpoint.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	cosigned := c.Want(200, "GET", "/v1/log/checkpoint", "", nil).Body
	if _, names, err := policy.Verify(cosigned); err != nil || len(names) != 2 {
		t.Errorf("cosigned by %v, %v:\n%s", names, err, cosigned)
	}

	bundleIs(t, c, first, text, 0, "OK   witnesses")

	// One witness is away: the deal ends, its certificate is there, and it is not
	// CERTIFIED although the checkpoint that covers it has the other's cosignature.
	stack.Witness(2, false)
	second, _ := play()
	leaf := leafOf(t, second.Certified(e2e.Patience))
	e2e.Eventually(t, "the other witness cosigns it", e2e.Patience, func() bool {
		at, names, err := policy.Verify(c.Want(200, "GET", "/checkpoint", "", nil).Body)
		return err != nil && at.Size > leaf && len(names) == 1
	})
	if state := second.View().State; state != "COMPUTED" {
		t.Errorf("%s with one witness of two", state)
	}
	bundleIs(t, c, second, text, 1, "FAIL witnesses")
	bundleIs(t, c, first, text, 0, "OK   witnesses") // under the checkpoint that both cosigned
	stack.Witness(2, true)
	e2e.Eventually(t, "CERTIFIED", 2*e2e.Patience, func() bool { return second.View().State == "CERTIFIED" })
	bundleIs(t, c, second, text, 0, "OK   witnesses")
	if state := first.View().State; state != "CERTIFIED" {
		t.Errorf("the first deal is %s again", state)
	}

	// A VOID deal has a leaf as well.
	rejected := e2e.Open(c, e2e.ShapleyBody(time.Hour, 2*time.Hour), 2, 1, e2e.Body{"accept": true}, e2e.Body{"accept": false})
	rejected.Deal.Reveal(1, rejected.Inputs[1])
	leaf = leafOf(t, rejected.Deal.Certified(e2e.Patience))
	var status translog.Status
	e2e.Eventually(t, "its leaf is covered", 2*e2e.Patience, func() bool {
		c.Want(200, "GET", "/v1/log/status", "", nil).Into(t, &status)
		return *status.CertifiedSize > leaf
	})
	if state := rejected.Deal.View().State; state != "VOID" {
		t.Errorf("a VOID deal shows %s", state)
	}
}

// signedPart is a certificate without its proof.
func signedPart(t *testing.T, text []byte) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "log_proof")
	left, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(left)
}

func leafOf(t *testing.T, text []byte) int64 {
	t.Helper()
	var cert struct {
		Proof struct {
			LeafIndex int64 `json:"leaf_index"`
		} `json:"log_proof"`
	}
	if err := json.Unmarshal(text, &cert); err != nil {
		t.Fatal(err)
	}
	return cert.Proof.LeafIndex
}
