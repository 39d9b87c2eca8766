package keys

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// A rotation needs no restart, also while log-server asks witnesses. A key set that a process
// cannot use changes nothing.
func TestRotationWithoutRestart(t *testing.T) {
	t.Parallel()
	firstURI, firstKey := e2e.KeyFile(t)
	kms := e2e.KeyService(t)
	secondURI := kms.URI(kms.NewKey())
	secondKey, err := signing.PublicKeyOf(t.Context(), secondURI)
	e2e.Must(t, err)
	k := e2e.NewKeyholder(t, firstURI, func(o *localstack.Options) { o.Witnesses = 1 })
	c := e2e.NewClient(t, k.Stack.BaseURL())
	pids := map[string]int{}
	for _, name := range k.Stack.Names() {
		pids[name] = k.Stack.PID(name)
	}
	old := c.ComputedDeal()
	if !e2e.SignedByKey(t, old.Certified(e2e.DefaultTimeout), firstKey) {
		t.Errorf("the first certificate is not signed with %s", firstKey)
	}
	k.Give([]byte("{"))
	for _, name := range []string{localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker} {
		e2e.Eventually(t, name+" refuses the key set", 2*e2e.DefaultTimeout, func() bool {
			said, err := os.ReadFile(k.Stack.Log(name))
			return err == nil && strings.Contains(string(said), "changed file not usable")
		})
	}
	c.ComputedDeal().Certified(e2e.DefaultTimeout)

	k.Keys(0, "rotate", "--to", secondURI, "--in", soonest.String())
	k.Reload()
	statusOfSigner(c, map[string]string{firstKey: "software key in a file", secondKey: "Google Cloud KMS"}, k.SignsFrom().Add(time.Second))
	d := c.ComputedDeal()
	if !e2e.SignedByKey(t, d.Certified(e2e.DefaultTimeout), secondKey) {
		t.Errorf("a certificate after signs_from is not signed with the new key %s", secondKey)
	}
	k.Close(firstKey)
	k.Reload()
	for _, deal := range []*e2e.CreatedDeal{old, d} {
		if !c.Verify(*deal.View().CertificateID).Valid {
			t.Errorf("the certificate of deal %s is not valid after the rotation", deal.ID)
		}
	}
	for name, pid := range pids {
		if now := k.Stack.PID(name); now != pid {
			t.Errorf("%s was restarted", name)
		}
	}
	e2e.Invariants(t, k.Stack)
}

// statusOfSigner requires until a time that GET /v1/status has the custody of the key that it names, and that it
// names each of the keys once.
func statusOfSigner(c *e2e.Client, custody map[string]string, until time.Time) {
	c.T.Helper()
	seen := map[string]bool{}
	for time.Now().Before(until) || len(seen) < len(custody) && time.Now().Before(until.Add(e2e.DefaultTimeout)) {
		var status struct {
			PublicKey string `json:"pubkey"`
			Custody   string `json:"key_custody"`
		}
		c.Want(200, "GET", "/v1/status", "", nil).Into(c.T, &status)
		if seen[status.PublicKey] = true; !strings.HasPrefix(status.Custody, custody[status.PublicKey]) {
			c.T.Fatalf("the status names the key %s with the custody %q, want %q", status.PublicKey, status.Custody, custody[status.PublicKey])
		}
		e2e.Pause(c.T.Context(), 50*time.Millisecond)
	}
	if len(seen) != len(custody) {
		c.T.Errorf("the status named the keys %v, want each of %v", seen, custody)
	}
}
