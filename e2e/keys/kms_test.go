package keys

import (
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// A deal costs one signature for its certificate, and at most one for the tree
// head that covers it: heads are signed one at a time, and each covers all that
// came while the one before it was made. A checkpoint takes one more, at most once
// a second. A quota of signatures a second is so many certificates less these.
func TestSignaturesOfADeal(t *testing.T) {
	t.Parallel()
	kms := e2e.KeyService(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+kms.URI(kms.NewKey()))
	})
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
	for _, at := range []struct{ once, deals int }{{1, 20}, {32, 320}} {
		e2e.Eventually(t, "a checkpoint of the first head", e2e.Patience, w.Checkpointed)
		before, published, signed := kms.Calls("AsymmetricSign"), w.Heads(), w.Checkpoints()
		began := time.Now()
		var players sync.WaitGroup
		for range at.once {
			players.Go(func() {
				for range at.deals / at.once {
					d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
					d.Play(e2e.AnnsValues, e2e.BobsValues)
				}
			})
		}
		players.Wait()
		w.Converged()
		took := time.Since(began)
		e2e.Eventually(t, "a checkpoint of the newest head", e2e.Patience, w.Checkpointed)
		calls, heads, checkpoints := kms.Calls("AsymmetricSign")-before, int(w.Heads()-published), int(w.Checkpoints()-signed)
		if calls != at.deals+heads+checkpoints || heads > at.deals {
			t.Errorf("%d deals: %d signatures, %d tree heads, %d checkpoints", at.deals, calls, heads, checkpoints)
		}
		t.Logf("%d at once: %d deals in %s, %d signatures (%.2f a deal), %d of them of tree heads, %d of checkpoints", at.once, at.deals, took.Round(time.Millisecond), calls, float64(calls)/float64(at.deals), heads, checkpoints)
	}
}
