package keys

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// A new key begins to sign while one process lacks the new key set. In the first rotation this
// process is a deal-api, and in the second rotation the log-server. Meanwhile some certificates wait
// or are signed with the old key, but no verification returns a wrong verdict. The rollout of the
// key set to the process ends the fault.
func TestProcessWithoutTheKeySet(t *testing.T) {
	t.Parallel()
	firstURI, firstKey := e2e.KeyFile(t)
	secondURI, secondKey := e2e.KeyFile(t)
	thirdURI, thirdKey := e2e.KeyFile(t)
	k := e2e.NewKeyholder(t, firstURI, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
	has, lacks := e2e.NewClient(t, k.Stack.BaseURL()), e2e.NewClient(t, k.Stack.URL(e2e.SecondAPI))
	certID := func(d *e2e.CreatedDeal) string { return *d.View().CertificateID }
	seen := func(c *e2e.Client, d *e2e.CreatedDeal) *e2e.CreatedDeal { there := *d; there.C = c; return &there }
	old := has.ComputedDeal()
	old.Certified(e2e.DefaultTimeout)

	k.Keys(0, "rotate", "--to", secondURI, "--in", soonest.String())
	k.RollOut(localstack.LogServer, localstack.DealAPI, localstack.DeadlineWorker)
	if out := k.Keys(1, "check"); !strings.Contains(out, "1 of 4 processes lack the key set") {
		t.Errorf("signing-keys check does not report 1 of 4 processes: %s", out)
	}
	k.Switched()
	d := has.ComputedDeal()
	if !e2e.SignedByKey(t, d.Certified(e2e.DefaultTimeout), secondKey) {
		t.Errorf("a certificate after signs_from is not signed with the new key %s", secondKey)
	}
	admin := e2e.NewClient(t, k.Stack.AdminURL(e2e.SecondAPI))
	e2e.Eventually(t, "the process without the key is not ready", e2e.DefaultTimeout, func() bool {
		a, err := admin.Try(t.Context(), "GET", "/readyz", "", nil)
		return err == nil && a.Status == http.StatusServiceUnavailable && strings.Contains(string(a.Body), secondKey)
	})
	for _, id := range []string{certID(d), certID(old)} {
		if a := lacks.Do("GET", "/v1/verify/"+id, "", nil); a.Status != http.StatusServiceUnavailable {
			t.Errorf("GET verify without the key: %d %s, want 503", a.Status, a.Body)
		}
	}
	if a := lacks.Do("GET", d.Path("/certificate"), d.Tokens[0], nil); a.Status != http.StatusServiceUnavailable {
		t.Errorf("GET certificate without the key: %d %s, want 503", a.Status, a.Body)
	}
	through := lacks.ComputedDeal()
	if certificate := seen(has, through).Certified(e2e.DefaultTimeout); !e2e.SignedByKey(t, certificate, firstKey) && !e2e.SignedByKey(t, certificate, secondKey) {
		t.Errorf("neither %s nor %s signed the certificate %s", firstKey, secondKey, certificate)
	}
	k.RollOut(e2e.SecondAPI)
	for _, deal := range []*e2e.CreatedDeal{old, d, through} {
		if !lacks.Verify(certID(deal)).Valid || !has.Verify(certID(deal)).Valid {
			t.Errorf("a deal-api reports the certificate of deal %s as not valid after the rollout", deal.ID)
		}
	}

	// At the second rotation, the log-server does not get the new key set.
	k.Keys(0, "rotate", "--to", thirdURI, "--in", soonest.String())
	k.RollOut(localstack.DealAPI, e2e.SecondAPI, localstack.DeadlineWorker)
	k.Switched()
	waits := has.ComputedDeal()
	if a := has.Do("GET", waits.Path("/certificate"), waits.Tokens[0], nil); a.Code() != "CERT_NOT_READY" {
		t.Errorf("a certificate that the log refuses: %d %s, want CERT_NOT_READY", a.Status, a.Body)
	}
	for _, deal := range []*e2e.CreatedDeal{old, d, through} {
		if a := has.Do("GET", "/v1/verify/"+certID(deal), "", nil); a.Status == http.StatusOK && !strings.Contains(string(a.Body), `"valid":true`) {
			t.Errorf("certificate of deal %s while the log-server lacks the key: %s, want valid or an error status", deal.ID, a.Body)
		}
	}
	k.RollOut(localstack.LogServer)
	if !e2e.SignedByKey(t, waits.Certified(e2e.DefaultTimeout), thirdKey) {
		t.Errorf("the certificate that waited is not signed with the new key %s", thirdKey)
	}
	if out := k.Keys(0, "check"); !strings.Contains(out, "4 run (1 deadline-worker, 2 deal-api, 1 log-server), all with the key set") {
		t.Errorf("signing-keys check does not report all 4 processes with the key set: %s", out)
	}
	e2e.OpenDB(t, k.Stack).Converged()
	e2e.Invariants(t, k.Stack)
}
