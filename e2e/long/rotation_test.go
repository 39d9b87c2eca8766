//go:build long

package long

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// rotation is a stack of two replicas of each binary under a stream of deals,
// while its signing key is replaced.
type rotation struct {
	t     *testing.T
	stack *localstack.Stack
	s     *e2e.Stubborn
	logs  []*e2e.Client // the read ports of both log-servers

	deals, heads atomic.Int64 // checked
	mu           sync.Mutex
	all          []*e2e.Soaked
	samples      map[string][]byte // certificates by the key that signed them
}

// The key goes current, next, retired, closed, and each step is rolled out one
// process at a time, as Kubernetes does. Every certificate and every tree head
// that anybody answers verifies at that moment under the status of every
// replica, by a client that knows no more than the contract.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	oldURI, oldKey := e2e.KeyFile(t)
	newURI, newKey := e2e.KeyFile(t)
	set := func(keys ...e2e.Body) string { return e2e.File(t, e2e.Body{"keys": keys}) }
	current := func(key string) e2e.Body { return e2e.Body{"pubkey": key, "state": "current"} }
	retired := e2e.Body{"pubkey": oldKey, "state": "retired", "retired_at": time.Now().Unix()}
	first := set(current(oldKey))
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+oldURI, "FAIRPACT_KEY_SET_FILE="+first)
	})
	r := &rotation{t: t, stack: stack, samples: map[string][]byte{},
		s:    &e2e.Stubborn{Doors: []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}},
		logs: []*e2e.Client{e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)), e2e.NewClient(t, stack.LogReadURL(e2e.SecondLog))},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.roll(ctx, oldURI, first) // the second deal-api and worker to the second log
	over := make(chan struct{})
	streams := r.streams(ctx, over)

	r.passes(ctx, 100)
	r.roll(ctx, oldURI, set(current(oldKey), e2e.Body{"pubkey": newKey, "state": "next"}))
	r.passes(ctx, 100)
	r.roll(ctx, newURI, set(current(newKey), retired))
	r.passes(ctx, 100)
	// Closed at the present size: by now nothing waits under the old key.
	retired["tree_size"] = r.treeSize(ctx)
	r.roll(ctx, newURI, set(current(newKey), retired))
	r.passes(ctx, 100)
	close(over)
	streams.Wait()

	e2e.Database(t, stack).Converged()
	e2e.Invariants(t, stack)
	// Every certificate was verified as it came; one deal in twenty is asked for
	// all its answers once more.
	for i := 0; i < len(r.all); i += 20 {
		if err := r.all[i].Ended(); err != nil {
			t.Errorf("deal %s: %v", r.all[i].Id, err)
		}
	}
	r.agreed(oldKey, newKey)
	t.Logf("%d deals, %d certificates and %d tree heads checked, %d requests", len(r.all), r.deals.Load(), r.heads.Load(), r.s.Attempts.Load())
}

// roll gives every process a key and a key set, one after the other.
func (r *rotation) roll(ctx context.Context, uri, set string) {
	r.t.Helper()
	second := e2e.SecondLogOf(r.stack)
	for _, name := range r.stack.Names() {
		env := []string{"FAIRPACT_SIGNING_KEY=" + uri, "FAIRPACT_KEY_SET_FILE=" + set}
		if name == e2e.SecondAPI || name == e2e.SecondWorker {
			env = append(env, second...)
		}
		if err := r.stack.Restart(ctx, name, env...); err != nil {
			r.t.Fatal(err)
		}
	}
}

// passes waits until so many more deals have their checked certificate.
func (r *rotation) passes(ctx context.Context, deals int64) {
	r.t.Helper()
	// The bound is on a single deal, whatever the machine's speed.
	for until := r.deals.Load() + deals; r.deals.Load() < until; {
		before := r.deals.Load()
		e2e.Eventually(r.t, "one more deal", e2e.Patience, func() bool { return r.deals.Load() > before || ctx.Err() != nil || r.t.Failed() })
		if r.t.Failed() || ctx.Err() != nil {
			r.t.FailNow()
		}
	}
}

// streams plays deals and reads a tree head after each, all of it checked, until
// over.
func (r *rotation) streams(ctx context.Context, over chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	until := func(step func() error) {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-ctx.Done():
					r.t.Error("the rotation took too long")
					return
				default:
				}
				if err := step(); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	for i := range 6 {
		until(func() error {
			if err := r.deal(ctx); err != nil {
				return err
			}
			return r.head(ctx, i%len(r.logs))
		})
	}
	return &wg
}

func (r *rotation) deal(ctx context.Context) error {
	d := &e2e.Soaked{T: r.t, S: r.s, Ctx: ctx}
	if err := d.Whole(e2e.SplitBody(time.Hour, 2*time.Hour), false, e2e.AnnsValues, e2e.BobsValues); err != nil {
		return err
	}
	certificate := d.Promises[len(d.Promises)-1].Answer.Body
	tree, err := canon.ParseObject(certificate)
	if err != nil {
		return err
	}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	for _, key := range r.signers(canon.Encode(tree), signature) {
		r.samples[key] = certificate
	}
	r.deals.Add(1)
	return nil
}

// verified asks both deal-apis for a verdict.
func (r *rotation) verified(ctx context.Context, certID string) error {
	for i := range r.s.Doors {
		a, err := r.door(ctx, i, "/v1/verify/"+certID)
		if err != nil {
			return err
		}
		var verdict e2e.Report
		if err := json.Unmarshal(a.Body, &verdict); err != nil || a.Status != 200 || !verdict.Valid {
			return fmt.Errorf("%s: deal-api %d says %d %s", certID, i+1, a.Status, a.Body)
		}
	}
	return nil
}

// head reads the newest tree head where it is published and through a deal-api.
func (r *rotation) head(ctx context.Context, i int) error {
	for _, c := range []*e2e.Client{r.logs[i], r.s.Doors[i]} {
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
		if err := r.accepted(ctx, "tree head", fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, h.Root, h.Size), h.Signature); err != nil {
			return err
		}
		r.heads.Add(1)
	}
	return nil
}

func (r *rotation) treeSize(ctx context.Context) (size int64) {
	r.t.Helper()
	a, err := insist(ctx, r.logs[0], "/v1/log/tree-head")
	var h struct {
		Size int64 `json:"tree_size"`
	}
	if err := errors.Join(err, json.Unmarshal(a.Body, &h)); err != nil {
		r.t.Fatal(err)
	}
	return h.Size
}

// accepted holds a signature that was answered to what each replica publishes.
func (r *rotation) accepted(ctx context.Context, what string, message []byte, signature string) error {
	for i := range r.s.Doors {
		a, err := r.door(ctx, i, "/v1/status")
		if err != nil {
			return err
		}
		var status e2e.KeysOfStatus
		if err := json.Unmarshal(a.Body, &status); err != nil {
			return err
		}
		keys, err := status.Keys()
		if err != nil {
			return err
		}
		if err := keys.Verify(message, signature); err != nil {
			return fmt.Errorf("%s %.200s, signed %.40s…: deal-api %d publishes %s and %v: %w", what, message, signature, i+1, status.Pubkey, status.Legacy, err)
		}
	}
	return nil
}

func (r *rotation) door(ctx context.Context, i int, path string) (e2e.Answer, error) {
	return insist(ctx, r.s.Doors[i], path)
}

// insist reads from one process, which may be restarting.
func insist(ctx context.Context, c *e2e.Client, path string) (e2e.Answer, error) {
	only := &e2e.Stubborn{Doors: []*e2e.Client{c}}
	return only.Again(ctx, e2e.Promise{Method: "GET", Path: path})
}

// signers are the keys, of all that any replica publishes now, that made a
// signature.
func (r *rotation) signers(message []byte, signature string) (made []string) {
	a, err := r.door(r.t.Context(), 0, "/v1/status")
	var status e2e.KeysOfStatus
	if err := errors.Join(err, json.Unmarshal(a.Body, &status)); err != nil {
		r.t.Error(err)
	}
	for _, label := range append(status.Legacy, status.Pubkey) {
		if key, err := signing.NewVerifyingKey(label); err == nil && key.Verify(message, signature) == nil {
			made = append(made, label)
		}
	}
	return made
}

// agreed asks each verifier about a certificate of each key.
func (r *rotation) agreed(keys ...string) {
	r.t.Helper()
	base := e2e.NewClient(r.t, r.stack.BaseURL())
	c := e2e.NewCtl(r.t, r.stack.BaseURL())
	for _, key := range keys {
		certificate := r.samples[key]
		if certificate == nil {
			r.t.Errorf("no certificate was signed by %s", key)
			continue
		}
		var shown struct {
			ID string `json:"cert_id"`
		}
		if err := json.Unmarshal(certificate, &shown); err != nil {
			r.t.Fatal(err)
		}
		e2e.Independently(r.t, base, certificate, true)
		c.File("certificate.json", certificate)
		if out, _ := c.Run(0, "verify", "certificate.json", "--base-url", base.Base); !strings.Contains(out, "valid") {
			r.t.Errorf("fairpactctl: %s", out)
		}
		var verdict e2e.Report
		base.Tool("verify_certificate", e2e.Body{"cert_id": shown.ID}).Into(r.t, &verdict)
		if !verdict.Valid {
			r.t.Errorf("over MCP: %+v", verdict)
		}
	}
}
