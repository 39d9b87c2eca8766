//go:build long

package long

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// outage is how long the key service is away.
const outage = time.Minute

// The key service is down for a minute under load. Every commit and reveal is
// answered with a 200 and every deal is COMPUTED; certificates say that they
// wait, and are issued once, by themselves, when it is back.
func TestKeyServiceIsDownForAMinute(t *testing.T) {
	t.Parallel()
	kms := e2e.KeyService(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2}
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+kms.URI(kms.NewKey()))
	})
	doors := []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}
	before := doors[0].Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	before.Play(e2e.AnnsValues, e2e.BobsValues)
	first := before.Certified(e2e.Patience)

	var calm time.Duration // what this machine needs for a reveal at the moment
	for range 5 {
		_, wait := e2e.PlayedAndTimed(doors[0])
		calm = max(calm, wait)
	}
	if err := kms.SetFault(kmstest.Down); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), outage)
	defer cancel()
	var mu sync.Mutex
	var all []*e2e.Cut
	var took []time.Duration // by the reveals that ended a deal
	var players sync.WaitGroup
	for i := range 2 {
		players.Go(func() {
			c := doors[i%len(doors)]
			for ctx.Err() == nil && !t.Failed() {
				d, wait := e2e.PlayedWithoutKey(c)
				mu.Lock()
				all, took = append(all, d), append(took, wait)
				mu.Unlock()
			}
		})
	}
	players.Wait()
	lasted := time.Since(began)

	// Old certificates are served all the same.
	if _, err := e2e.WithoutProof(before.Certified(0)); err != nil {
		t.Errorf("%v in %s", err, first)
	}
	if err := kms.SetFault(kmstest.None); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	w := e2e.Database(t, stack)
	w.Converged()
	late := time.Since(back)
	t.Logf("%d deals ended in the %s without a key service; reveal p50 %s, p99 %s, longest %s; all certificates %s after its return",
		len(all), lasted.Round(time.Second), e2e.Quantile(took, 0.5), e2e.Quantile(took, 0.99), e2e.Quantile(took, 1), late.Round(time.Millisecond))
	// Who waits out the bound in every reveal is 2.5 s above what it takes else.
	if half := e2e.Quantile(took, 0.5); half > e2e.IssueBound/2+2*calm {
		t.Errorf("half of all reveals took %s and more, and %s when the key service answers: nobody is to wait for what is known to be away", half, calm)
	}
	e2e.Invariants(t, stack)
	// The invariants hold every certificate's signature and leaf; a client looks
	// at one in twenty.
	for i := 0; i < len(all); i += 20 {
		d := all[i]
		v := d.Deal.View()
		if v.CertificateID == nil {
			t.Fatalf("deal %s has no certificate", d.Deal.ID)
		}
		if r := d.Deal.C.Verify(*v.CertificateID); !r.Valid {
			t.Errorf("%+v", r)
		}
	}
	last := all[len(all)-1]
	(&e2e.Cut{Deal: last.Deal, Inputs: last.Inputs, Params: e2e.SplitBody(0, 0)["algorithm_params"].(e2e.Body)}).Recomputed(t, doors[0], last.Deal.Certified(0))
}
