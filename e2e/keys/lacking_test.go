package keys

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// readiness is what a process's /readyz answers; 0 while nothing listens.
func readiness(t testing.TB, stack *localstack.Stack, name string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(stack.AdminURL(name) + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// A process does not have the document when the new key begins to sign, a
// deal-api first and then the log-server. Certificates wait or are signed with
// the other key, no verdict is wrong, and the roll-out heals all.
func TestProcessWithoutTheKeySet(t *testing.T) {
	t.Parallel()
	firstURI, firstKey := e2e.KeyFile(t)
	secondURI, secondKey := e2e.KeyFile(t)
	thirdURI, thirdKey := e2e.KeyFile(t)
	k := e2e.NewKeyholder(t, firstURI, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
	has, lacks := e2e.NewClient(t, k.Stack.BaseURL()), e2e.NewClient(t, k.Stack.URL(e2e.SecondAPI))
	played := func(c *e2e.Client) *e2e.Dealt {
		t.Helper()
		d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		return d
	}
	certID := func(d *e2e.Dealt) string { return *d.View().CertificateID }
	seen := func(c *e2e.Client, d *e2e.Dealt) *e2e.Dealt { there := *d; there.C = c; return &there }
	old := played(has)
	old.Certified(e2e.Patience)

	// The second deal-api lacks the key.
	k.Keys(0, "rotate", "--to", secondURI, "--in", e2e.Soonest.String())
	k.RollOut(localstack.LogServer, localstack.DealAPI, localstack.DeadlineWorker)
	if out := k.Keys(1, "check"); !strings.Contains(out, "1 of 4 have another key set") {
		t.Error(out)
	}
	k.Switched()
	d := played(has)
	if !e2e.SignedByKey(t, d.Certified(e2e.Patience), secondKey) {
		t.Error("the new key does not sign when its time has come")
	}
	e2e.Eventually(t, "the process without the key is not ready", e2e.Patience, func() bool {
		status, text := readiness(t, k.Stack, e2e.SecondAPI)
		return status == http.StatusServiceUnavailable && strings.Contains(text, secondKey)
	})
	for _, id := range []string{certID(d), certID(old)} {
		if a := lacks.Do("GET", "/v1/verify/"+id, "", nil); a.Status != http.StatusServiceUnavailable {
			t.Errorf("verify without the key: %d %s", a.Status, a.Body)
		}
	}
	if a := lacks.Do("GET", d.Path("/certificate"), d.Tokens[0], nil); a.Status != http.StatusServiceUnavailable {
		t.Errorf("a certificate without the key: %d %s", a.Status, a.Body)
	}
	through := played(lacks)
	if certificate := seen(has, through).Certified(e2e.Patience); !e2e.SignedByKey(t, certificate, firstKey) && !e2e.SignedByKey(t, certificate, secondKey) {
		t.Errorf("neither key signed %s", certificate)
	}
	k.RollOut(e2e.SecondAPI)
	for _, deal := range []*e2e.Dealt{old, d, through} {
		if !lacks.Verify(certID(deal)).Valid || !has.Verify(certID(deal)).Valid {
			t.Errorf("%s is not valid", deal.ID)
		}
	}

	// The log-server lacks the key after that.
	k.Keys(0, "rotate", "--to", thirdURI, "--in", e2e.Soonest.String())
	k.RollOut(localstack.DealAPI, e2e.SecondAPI, localstack.DeadlineWorker)
	k.Switched()
	waits := played(has)
	if a := has.Do("GET", waits.Path("/certificate"), waits.Tokens[0], nil); a.Code() != "CERT_NOT_READY" {
		t.Errorf("a certificate that the log does not take: %d %s", a.Status, a.Body)
	}
	for _, deal := range []*e2e.Dealt{old, d, through} {
		if a := has.Do("GET", "/v1/verify/"+certID(deal), "", nil); a.Status == http.StatusOK && !strings.Contains(string(a.Body), `"valid":true`) {
			t.Errorf("%s: %s", deal.ID, a.Body)
		}
	}
	k.RollOut(localstack.LogServer)
	if !e2e.SignedByKey(t, waits.Certified(e2e.Patience), thirdKey) {
		t.Error("what waited is not signed with the new key")
	}
	if out := k.Keys(0, "check"); !strings.Contains(out, "4 run (1 deadline-worker, 2 deal-api, 1 log-server), all with the key set") {
		t.Error(out)
	}
	e2e.Database(t, k.Stack).Converged()
	e2e.Invariants(t, k.Stack)
}
