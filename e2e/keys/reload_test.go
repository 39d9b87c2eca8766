package keys

import (
	"os"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// A rotation needs no restart, also while log-server asks witnesses. A key set that a process
// cannot use changes nothing.
func TestRotationWithoutRestart(t *testing.T) {
	t.Parallel()
	firstURI, firstKey := e2e.KeyFile(t)
	secondURI, secondKey := e2e.KeyFile(t)
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

	k.Keys(0, "rotate", "--to", secondURI, "--in", e2e.Soonest.String())
	k.Reload()
	k.Switched()
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
