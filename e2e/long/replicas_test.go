//go:build long

package long

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// Two replicas of each binary under load: every deal ends as it should, through
// whichever replica its calls went, and no replica shows an older tree head than
// any has proved a certificate against.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const deals, players = 120, 8
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})
	for _, name := range []string{e2e.SecondAPI, e2e.SecondWorker} {
		if err := stack.Restart(t.Context(), name, e2e.SecondLogOf(stack)...); err != nil {
			t.Fatal(err)
		}
	}
	doors := []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}
	logs := []*e2e.Client{e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)), e2e.NewClient(t, stack.LogReadURL(e2e.SecondLog))}
	s := &e2e.Stubborn{Doors: doors}
	ctx, cancel := context.WithTimeout(t.Context(), 10*e2e.Patience)
	defer cancel()

	f := &freshness{}
	var watch sync.WaitGroup
	over, end := context.WithCancel(ctx)
	for _, c := range append(logs, doors...) {
		watch.Go(func() { f.watch(t, over, c) })
	}
	var all []*e2e.Soaked
	var mu sync.Mutex
	var next atomic.Int64
	var load sync.WaitGroup
	for range players {
		load.Go(func() {
			for n := next.Add(1); n <= deals; n = next.Add(1) {
				d := &e2e.Soaked{T: t, S: s, Ctx: ctx, Past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				err := d.Play(int(n))
				if err == nil && d.States[0] == "COMPUTED" {
					err = f.proved(ctx, doors[n%2], d)
				}
				if err != nil {
					t.Errorf("deal %s: %v", d.Id, err)
				}
				mu.Lock()
				all = append(all, d)
				mu.Unlock()
			}
		})
	}
	load.Wait()
	end()
	watch.Wait()
	e2e.Database(t, stack).Converged()
	e2e.Invariants(t, stack)
	for _, d := range all {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	if f.heads.Load() < int64(deals) {
		t.Errorf("only %d heads were looked at", f.heads.Load())
	}
}

// freshness is the largest tree that any answered proof was made against.
type freshness struct {
	size  atomic.Int64
	heads atomic.Int64
}

// proved fetches a deal's certificate once more and notes its tree.
func (f *freshness) proved(ctx context.Context, c *e2e.Client, d *e2e.Soaked) error {
	a, err := c.Try(ctx, "GET", "/v1/deals/"+d.Id+"/certificate", d.Tokens[0], nil)
	if err != nil || a.Status != 200 {
		return fmt.Errorf("certificate: %w %d %s", err, a.Status, a.Body)
	}
	var shown struct {
		Proof struct {
			Size int64 `json:"tree_size"`
		} `json:"log_proof"`
	}
	err = json.Unmarshal(a.Body, &shown)
	e2e.Raise(&f.size, shown.Proof.Size)
	return err
}

// watch asks a replica for its head, again and again, and holds it against the
// proofs that were answered before the question.
func (f *freshness) watch(t *testing.T, ctx context.Context, c *e2e.Client) {
	for ctx.Err() == nil {
		before := f.size.Load()
		a, err := c.Try(ctx, "GET", "/v1/log/tree-head", "", nil)
		if errors.Is(err, context.Canceled) {
			return
		}
		var head struct {
			Size int64 `json:"tree_size"`
		}
		if err == nil {
			err = json.Unmarshal(a.Body, &head)
		}
		if err != nil || a.Status != 200 || head.Size < before {
			t.Errorf("%s shows a head of size %d after a proof against %d: %v, %d %.300s", c.Base, head.Size, before, err, a.Status, a.Body)
			return
		}
		f.heads.Add(1)
	}
}
