package keys

import (
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// Each certificate, tree head and checkpoint takes one signature. The log signs at most one tree
// head for each deal, and at most one checkpoint a second.
func TestSignaturesOfADeal(t *testing.T) {
	t.Parallel()
	kms := e2e.KeyService(t)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], e2e.OneKey(t, kms.URI(kms.NewKey())))
	})
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	for _, load := range []struct{ players, deals int }{{1, 20}, {32, 320}} {
		e2e.Eventually(t, "a checkpoint of the first head", e2e.DefaultTimeout, w.Checkpointed)
		before, published, signed := kms.Calls("AsymmetricSign"), w.Heads(), w.Checkpoints()
		began := time.Now()
		var players sync.WaitGroup
		for range load.players {
			players.Go(func() {
				for range load.deals / load.players {
					c.ComputedDeal()
				}
			})
		}
		players.Wait()
		w.Converged()
		took := time.Since(began)
		e2e.Eventually(t, "a checkpoint of the newest head", e2e.DefaultTimeout, w.Checkpointed)
		calls, heads, checkpoints := kms.Calls("AsymmetricSign")-before, int(w.Heads()-published), int(w.Checkpoints()-signed)
		if calls != load.deals+heads+checkpoints || heads > load.deals {
			t.Errorf("%d deals took %d signatures, want one for each deal, head and checkpoint; %d heads (want at most one a deal), %d checkpoints", load.deals, calls, heads, checkpoints)
		}
		t.Logf("%d at once: %d deals in %s, %d signatures (%.2f a deal), %d of them of tree heads, %d of checkpoints", load.players, load.deals, took.Round(time.Millisecond), calls, float64(calls)/float64(load.deals), heads, checkpoints)
	}
}
