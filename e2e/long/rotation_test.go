//go:build long

package long

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// rotation is a stack with two replicas of each binary. It runs deals while its signing
// key is replaced.
type rotation struct {
	*e2e.Keyholder
	s    *e2e.RetryingClient
	logs []*e2e.Client // the read ports of both log-servers

	certificates, heads atomic.Int64 // numbers of checked certificates and tree heads
	proved              atomic.Int64 // the largest tree size in a proof so far
	mu                  sync.Mutex
	all                 []*e2e.LoadDeal
	newKey              string
	newSigned           atomic.Bool
}

// The operator rolls a rotation out process by process, and changes the rotation time halfway. Then
// the new key signs, and the operator closes the old key. All the time, clients verify certificates
// and tree heads under the keys that each deal-api publishes. No replica may show a tree head whose
// size is smaller than the tree size in an earlier proof of any replica.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	const deals = 25 // certificates to check between two steps of the rotation
	oldURI, oldKey := e2e.KeyFile(t)
	newURI, newKey := e2e.KeyFile(t)
	r := &rotation{newKey: newKey, Keyholder: e2e.NewKeyholder(t, oldURI, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})}
	stack := r.Stack
	r.s = &e2e.RetryingClient{Clients: []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}}
	r.logs = []*e2e.Client{e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)), e2e.NewClient(t, stack.LogReadURL(e2e.SecondLog))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	r.RollOut() // connects the second deal-api and worker to the second log-server
	roll := time.Since(began)
	streams := r.streams(ctx)
	r.passes(deals)

	r.Keys(0, "rotate", "--to", newURI, "--in", "1h")
	r.RollOut(localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker)
	if out := r.Keys(1, "check"); !strings.Contains(out, "FAIL processes") || !strings.Contains(out, "3 of 6 processes lack the key set") {
		t.Errorf("signing-keys check does not report 3 of 6 processes: %s", out)
	}
	r.Keys(0, "rotate", "--to", newURI, "--in", (4*roll + 4*e2e.KeyMargin).String())
	r.RollOut()
	// If the rollout took too long, postpone the rotation and roll out again.
	for i := time.Duration(8); time.Until(r.SignsFrom()) < 2*e2e.KeyMargin; i *= 2 {
		r.Keys(0, "rotate", "--to", newURI, "--in", (i*roll + 4*e2e.KeyMargin).String())
		r.RollOut()
	}
	if r.newSigned.Load() {
		t.Error("the new key has signed before its time")
	}
	if out := r.Keys(0, "check"); !strings.Contains(out, "6 run (2 deadline-worker, 2 deal-api, 2 log-server), all with the key set") || !strings.Contains(out, "next: nothing: "+newKey+" signs from ") {
		t.Errorf("signing-keys check does not report all 6 processes with the key set, and when %s signs: %s", newKey, out)
	}
	r.Switched()
	r.passes(deals)
	e2e.Eventually(t, "the new key signs", e2e.DefaultTimeout, r.newSigned.Load)
	r.Close(oldKey)
	r.RollOut()
	r.passes(deals)
	cancel()
	streams.Wait()

	e2e.OpenDB(t, stack).Converged()
	e2e.Invariants(t, stack)
	// The goroutines of r.streams have verified every certificate. For every tenth deal, Ended also repeats the deal's
	// requests, which must get the same responses.
	for i := 0; i < len(r.all); i += 10 {
		r.all[i].Ctx = t.Context()
		if err := r.all[i].Ended(); err != nil {
			t.Errorf("deal %s: %v", r.all[i].Id, err)
		}
	}
	if out := r.Keys(0, "check"); !strings.Contains(out, "next: nothing: one key signs") {
		t.Errorf("signing-keys check does not say that one key signs: %s", out)
	}
	t.Logf("%d deals, %d certificates and %d tree heads checked, %d requests", len(r.all), r.certificates.Load(), r.heads.Load(), r.s.Attempts.Load())
}

// passes waits until the goroutines of streams have checked the certificates of `deals` more
// deals. The wait for each deal has its own time limit.
func (r *rotation) passes(deals int64) {
	r.T.Helper()
	until := r.certificates.Load() + deals
	for at := r.certificates.Load(); at < until; at = r.certificates.Load() {
		e2e.Eventually(r.T, "another deal ends", 2*e2e.DefaultTimeout, func() bool { return r.certificates.Load() > at || r.T.Failed() })
		if r.T.Failed() {
			r.T.FailNow()
		}
	}
}

func (r *rotation) streams(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := r.deal(ctx)
				if err == nil {
					err = r.head(ctx, i%len(r.logs))
				}
				if err != nil && ctx.Err() == nil {
					r.T.Errorf("a deal or a tree head in stream %d: %v", i, err)
					return
				}
			}
		})
	}
	return &wg
}

func (r *rotation) deal(ctx context.Context) error {
	d := &e2e.LoadDeal{T: r.T, S: r.s, Ctx: ctx}
	if err := d.Whole(e2e.SplitBody(time.Hour, 2*time.Hour), false, e2e.AnnsValues, e2e.BobsValues); err != nil {
		return err
	}
	certificate := d.Calls[len(d.Calls)-1].Answer.Body
	tree, err := canon.ParseObject(certificate)
	if err != nil {
		return err
	}
	proof, _ := tree["log_proof"].(map[string]any)
	size, proven := proof["tree_size"].(int64)
	if !proven {
		return fmt.Errorf("the certificate has no log_proof with a tree_size: %s", certificate)
	}
	e2e.Raise(&r.proved, size)
	signature, _ := tree["signature"].(string)
	delete(tree, "signature")
	delete(tree, "log_proof")
	if err := r.accepted(ctx, "certificate", canon.Encode(tree), signature); err != nil {
		return err
	}
	id, _ := tree["cert_id"].(string)
	if err := r.verified(ctx, id); err != nil {
		return err
	}
	if e2e.SignedByKey(r.T, certificate, r.newKey) {
		r.newSigned.Store(true)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	r.certificates.Add(1)
	return nil
}

func (r *rotation) verified(ctx context.Context, certID string) error {
	for i := range r.s.Clients {
		a, err := insist(ctx, r.s.Clients[i], "/v1/verify/"+certID)
		if err != nil {
			return err
		}
		var verdict e2e.Report
		if err := json.Unmarshal(a.Body, &verdict); err != nil || a.Status != 200 || !verdict.Valid {
			return fmt.Errorf("GET /v1/verify/%s at deal-api %d: %d %s, want 200 and valid", certID, i+1, a.Status, a.Body)
		}
	}
	return nil
}

func (r *rotation) head(ctx context.Context, i int) error {
	for _, c := range []*e2e.Client{r.logs[i], r.s.Clients[i]} {
		proved := r.proved.Load()
		a, err := insist(ctx, c, "/v1/log/tree-head")
		if err != nil {
			return err
		}
		var h struct {
			Size      int64  `json:"tree_size"`
			Root      string `json:"root_hash"`
			Signature string
		}
		if err := json.Unmarshal(a.Body, &h); err != nil {
			return err
		}
		if h.Size < proved {
			return fmt.Errorf("%s shows a tree head of size %d after a proof of tree size %d, want at least that size", c.Base, h.Size, proved)
		}
		if err := r.accepted(ctx, "tree head", fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, h.Root, h.Size), h.Signature); err != nil {
			return err
		}
		r.heads.Add(1)
	}
	return nil
}

func (r *rotation) accepted(ctx context.Context, what string, message []byte, signature string) error {
	for i := range r.s.Clients {
		a, err := insist(ctx, r.s.Clients[i], "/v1/status")
		if err != nil {
			return err
		}
		var status e2e.KeysOfStatus
		if err := json.Unmarshal(a.Body, &status); err != nil {
			return err
		}
		if _, err := status.Keys().SignerOf(message, signature); err != nil {
			return fmt.Errorf("%s %.200s with signature %.40s…, under the keys %s and %v of deal-api %d: %w", what, message, signature, status.Pubkey, status.Legacy, i+1, err)
		}
	}
	return nil
}

func insist(ctx context.Context, c *e2e.Client, path string) (e2e.Answer, error) {
	only := &e2e.RetryingClient{Clients: []*e2e.Client{c}}
	return only.Again(ctx, e2e.RecordedCall{Method: "GET", Path: path})
}
