package keys

import (
	"os"
	"strings"
	"testing"

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

	custody := map[string]string{firstKey: "software key in a file", secondKey: "Google Cloud KMS"}
	statusNames(c, firstKey, custody)
	k.Keys(0, "rotate", "--to", secondURI, "--in", soonest.String())
	k.Reload()
	statusNames(c, secondKey, custody)
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

// statusNames waits until GET /v1/status names a key, and requires the custody of each key that it names.
func statusNames(c *e2e.Client, key string, custody map[string]string) {
	c.T.Helper()
	e2e.Eventually(c.T, "the status names "+key, soonest+e2e.DefaultTimeout, func() bool {
		var status struct {
			PublicKey string `json:"pubkey"`
			Custody   string `json:"key_custody"`
		}
		c.Want(200, "GET", "/v1/status", "", nil).Into(c.T, &status)
		if want := custody[status.PublicKey]; want == "" || !strings.HasPrefix(status.Custody, want) {
			c.T.Fatalf("the status names the key %s with the custody %q, want %q", status.PublicKey, status.Custody, want)
		}
		return status.PublicKey == key
	})
}
