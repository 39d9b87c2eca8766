package trust

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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

// What was CERTIFIED stays so: for a replica that cannot reach log-server's read port, and after the
// witnesses are out of the configuration. A wait on a COMPUTED deal ends with CERTIFIED.
func TestCertifiedStays(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Witnesses = 2 })
	c := e2e.NewClient(t, stack.BaseURL())
	shows := func(d *e2e.CreatedDeal, want string) {
		t.Helper()
		for range 3 {
			if state := d.View().State; state != want {
				t.Errorf("the deal shows %s, want %s", state, want)
			}
		}
	}
	restart := func(name string, env ...string) {
		t.Helper()
		if err := stack.Restart(t.Context(), name, env...); err != nil {
			t.Fatal(err)
		}
	}
	stack.Witness(2, false)
	d := e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal
	d.Certified(e2e.DefaultTimeout)
	if a := c.Want(200, "GET", d.Path(""), d.Tokens[0], nil); a.Header.Get("Fairpact-Next-Look") == "" {
		t.Error("a COMPUTED deal that awaits its witnesses has no Fairpact-Next-Look")
	}
	stack.Witness(2, true)
	var v e2e.View
	for v.State = "COMPUTED"; v.State == "COMPUTED"; {
		began := time.Now()
		c.Want(200, "GET", d.Path("?wait=45&since=COMPUTED"), d.Tokens[0], nil).Into(t, &v)
		if v.State == "COMPUTED" && time.Since(began) < 40*time.Second {
			t.Fatalf("the wait ended after %s with COMPUTED, want CERTIFIED", time.Since(began))
		}
	}
	if v.State != "CERTIFIED" {
		t.Fatalf("the wait ended with %s, want CERTIFIED", v.State)
	}
	shows(d, "CERTIFIED")

	restart(localstack.DealAPI, "FAIRPACT_LOG_READ_URL=http://127.0.0.1:1")
	shows(d, "CERTIFIED")

	text, err := os.ReadFile(stack.PolicyFile())
	if err != nil {
		t.Fatal(err)
	}
	without := "quorum none\n"
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "log ") {
			without = line + without
		}
	}
	file := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(file, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	restart(localstack.LogServer, "FAIRPACT_WITNESS_POLICY_FILE="+file)
	restart(localstack.DealAPI)
	shows(d, "CERTIFIED")
	later := e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal
	later.Certified(e2e.DefaultTimeout)
	shows(later, "COMPUTED")
	c.Want(200, "GET", later.Path("?wait=45&since=COMPUTED"), later.Tokens[0], nil).Into(t, &v)
	if v.State != "COMPUTED" {
		t.Errorf("the wait without witnesses ended with %s, want COMPUTED", v.State)
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
