package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// outage is how long the key service is away.
const outage = time.Minute

// keyService is a cloud's key service for one test.
func keyService(t testing.TB) *kmstest.GCP {
	t.Helper()
	kms, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kms.Close)
	return kms
}

// signedDeal is a deal that was played while the key service was away.
type signedDeal struct {
	deal   *dealt
	inputs []sealed
}

// The key service is down for a minute under load. Every commit and reveal is
// answered with a 200 and every deal is COMPUTED; certificates say that they
// wait, and are issued once, by themselves, when it is back.
func TestKeyServiceIsDownForAMinute(t *testing.T) {
	t.Parallel()
	kms := keyService(t)
	stack := own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2}
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+kms.URI(kms.NewKey()))
	})
	doors := []*client{newClient(t, stack.URL(localstack.DealAPI)), newClient(t, stack.URL(secondAPI))}
	before := doors[0].create(splitBody(time.Hour, 2*time.Hour))
	before.play(annsValues, bobsValues)
	first := before.certified(patience)

	if err := kms.SetFault(kmstest.Down); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), outage)
	defer cancel()
	var mu sync.Mutex
	var all []signedDeal
	var took []time.Duration // by the reveals that ended a deal
	var players sync.WaitGroup
	for i := range 2 {
		players.Go(func() {
			c := doors[i%len(doors)]
			for ctx.Err() == nil && !t.Failed() {
				d, wait := playedWithoutKey(c)
				mu.Lock()
				all, took = append(all, d), append(took, wait)
				mu.Unlock()
			}
		})
	}
	players.Wait()
	lasted := time.Since(began)

	// Old certificates are served all the same.
	if _, err := withoutProof(before.certified(0)); err != nil {
		t.Errorf("%v in %s", err, first)
	}
	if err := kms.SetFault(kmstest.None); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	w := database(t, stack)
	w.converged()
	late := time.Since(back)
	t.Logf("%d deals ended in the %s without a key service; reveal p50 %s, p99 %s, longest %s; all certificates %s after its return",
		len(all), lasted.Round(time.Second), quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1), late.Round(time.Millisecond))
	if p99 := quantile(took, 0.99); p99 > signingBound {
		t.Errorf("one reveal in a hundred took %s and more, the bound is %s", p99, signingBound)
	}
	// Who waits out the bound in every reveal is at 3 s.
	if half := quantile(took, 0.5); half > issueBound/2 {
		t.Errorf("half of all reveals took %s and more: nobody is to wait for what is known to be away", half)
	}
	if late > returnBound {
		t.Errorf("the last certificate came %s after the key service was back, the bound is %s", late, returnBound)
	}
	invariants(t, stack)
	// The invariants hold every certificate's signature and leaf; a client looks
	// at one in twenty.
	for i := 0; i < len(all); i += 20 {
		d := all[i]
		v := d.deal.view()
		if v.CertificateID == nil {
			t.Fatalf("deal %s has no certificate", d.deal.ID)
		}
		if r := d.deal.c.verify(*v.CertificateID); !r.Valid {
			t.Errorf("%+v", r)
		}
	}
	last := all[len(all)-1]
	(&cut{deal: last.deal, inputs: last.inputs, params: splitBody(0, 0)["algorithm_params"].(body)}).recomputed(t, doors[0], last.deal.certified(0))
}

const (
	// issueBound is what a reveal waits for its certificate (internal/escrow).
	issueBound = 3 * time.Second

	// signingBound is that, with its two statements on a busy machine.
	signingBound = issueBound + 2*time.Second

	// returnBound is until all that waited for the key have their certificates:
	// seconds, and what a busy machine needs for some thousand of them.
	returnBound = 45 * time.Second
)

// playedWithoutKey plays a deal whose certificate has to wait, and gives what
// its last reveal took.
func playedWithoutKey(c *client) (signedDeal, time.Duration) {
	d, took := playedAndTimed(c)
	if a := c.do("GET", d.deal.path("/certificate"), d.deal.Tokens[0], nil); a.status != 409 || a.code() != "CERT_NOT_READY" {
		c.t.Errorf("the certificate while the key service is away: %d %s", a.status, a.body)
	}
	return d, took
}

// playedAndTimed plays a deal and gives what its last reveal took.
func playedAndTimed(c *client) (signedDeal, time.Duration) {
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	inputs := []sealed{seal(c.t, annsValues), seal(c.t, bobsValues)}
	for i, in := range inputs {
		d.commit(i, in)
	}
	d.reveal(0, inputs[0])
	began := time.Now()
	a := d.reveal(1, inputs[1])
	took := time.Since(began)
	var told struct{ State string }
	if a.into(c.t, &told); told.State != "COMPUTED" {
		c.t.Errorf("the last reveal: %s", a.body)
	}
	return signedDeal{d, inputs}, took
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Millisecond)
}

// A deal costs one signature for its certificate, and at most one for the tree
// head that covers it: heads are signed one at a time, and each covers all that
// came while the one before it was made. A quota of signatures a second is so
// many certificates less the heads.
func TestSignaturesOfADeal(t *testing.T) {
	t.Parallel()
	kms := keyService(t)
	stack := own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+kms.URI(kms.NewKey()))
	})
	c, w := newClient(t, stack.BaseURL()), database(t, stack)
	for _, at := range []struct{ once, deals int }{{1, 20}, {32, 320}} {
		before, published := kms.Calls("AsymmetricSign"), w.number(`SELECT count(*) FROM translog.tree_heads`)
		began := time.Now()
		var players sync.WaitGroup
		for range at.once {
			players.Go(func() {
				for range at.deals / at.once {
					d := c.create(splitBody(time.Hour, 2*time.Hour))
					d.play(annsValues, bobsValues)
				}
			})
		}
		players.Wait()
		w.converged()
		took := time.Since(began)
		calls, heads := kms.Calls("AsymmetricSign")-before, int(w.number(`SELECT count(*) FROM translog.tree_heads`)-published)
		if calls != at.deals+heads || heads > at.deals {
			t.Errorf("%d deals: %d signatures, %d tree heads", at.deals, calls, heads)
		}
		t.Logf("%d at once: %d deals in %s, %d signatures (%.2f a deal), %d of them of tree heads", at.once, at.deals, took.Round(time.Millisecond), calls, float64(calls)/float64(at.deals), heads)
	}
}
