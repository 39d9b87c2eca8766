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
	*e2e.Keyholder
	s    *e2e.Stubborn
	logs []*e2e.Client // the read ports of both log-servers

	deals, heads atomic.Int64 // checked
	mu           sync.Mutex
	all          []*e2e.Soaked
	samples      map[string][]byte // certificates by the key that signed them
}

// A rotation that is postponed, rolled out one process at a time, switches by
// itself and is closed. Every certificate and every tree head that anybody
// answers verifies at that moment under the status of every replica, by a client
// that knows no more than the contract.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	const deals = 25 // between two steps
	oldURI, oldKey := e2e.KeyFile(t)
	newURI, newKey := e2e.KeyFile(t)
	r := &rotation{samples: map[string][]byte{}, Keyholder: e2e.NewKeyholder(t, oldURI, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})}
	stack := r.Stack
	r.s = &e2e.Stubborn{Doors: []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}}
	r.logs = []*e2e.Client{e2e.NewClient(t, stack.LogReadURL(localstack.LogServer)), e2e.NewClient(t, stack.LogReadURL(e2e.SecondLog))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	r.RollOut() // the second deal-api and worker to the second log
	roll := time.Since(began)
	streams := r.streams(ctx)
	r.passes(deals)

	// On half of the processes when it is postponed.
	r.Keys(0, "rotate", "--to", newURI, "--in", "1h")
	r.RollOut(localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker)
	if out := r.Keys(1, "check"); !strings.Contains(out, "FAIL processes") || !strings.Contains(out, "3 of 6 have another key set") {
		t.Error(out)
	}
	r.Keys(0, "rotate", "--to", newURI, "--in", (4*roll + 4*e2e.KeyMargin).String())
	r.RollOut()
	// Where the machine became slow: once more.
	for i := time.Duration(8); time.Until(r.SignsFrom()) < 2*e2e.KeyMargin; i *= 2 {
		r.Keys(0, "rotate", "--to", newURI, "--in", (i*roll + 4*e2e.KeyMargin).String())
		r.RollOut()
	}
	if r.signedBy(newKey) {
		t.Error("the new key has signed before its time")
	}
	if out := r.Keys(0, "check"); !strings.Contains(out, "6 run (2 deadline-worker, 2 deal-api, 2 log-server), all with the key set") || !strings.Contains(out, "next: nothing: "+newKey+" signs from ") {
		t.Error(out)
	}
	r.Switched()
	r.passes(deals)
	e2e.Eventually(t, "the new key signs", e2e.Patience, func() bool { return r.signedBy(newKey) })
	r.Close(oldKey)
	r.RollOut()
	r.passes(deals)
	cancel()
	streams.Wait()

	e2e.Database(t, stack).Converged()
	e2e.Invariants(t, stack)
	// Every certificate was verified as it came; one deal in ten is asked for all
	// its answers once more.
	for i := 0; i < len(r.all); i += 10 {
		r.all[i].Ctx = t.Context()
		if err := r.all[i].Ended(); err != nil {
			t.Errorf("deal %s: %v", r.all[i].Id, err)
		}
	}
	r.agreed(oldKey, newKey)
	if out := r.Keys(0, "check"); !strings.Contains(out, "next: nothing: one key signs") {
		t.Error(out)
	}
	t.Logf("%d deals, %d certificates and %d tree heads checked, %d requests", len(r.all), r.deals.Load(), r.heads.Load(), r.s.Attempts.Load())
}

// signedBy reports whether a certificate of this key was answered.
func (r *rotation) signedBy(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.samples[key] != nil
}

// passes waits until so many more deals have their checked certificate.
func (r *rotation) passes(deals int64) {
	r.T.Helper()
	// The bound is on a single deal, whatever the machine's speed.
	until := r.deals.Load() + deals
	for at := r.deals.Load(); at < until; at = r.deals.Load() {
		e2e.Eventually(r.T, "another deal ends", 2*e2e.Patience, func() bool { return r.deals.Load() > at || r.T.Failed() })
		if r.T.Failed() {
			r.T.FailNow()
		}
	}
}

// streams plays deals and reads a tree head after each, all of it checked, until
// ctx ends.
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
					r.T.Error(err)
					return
				}
			}
		})
	}
	return &wg
}

func (r *rotation) deal(ctx context.Context) error {
	d := &e2e.Soaked{T: r.T, S: r.s, Ctx: ctx}
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
	a, err := r.door(context.WithoutCancel(r.T.Context()), 0, "/v1/status")
	var status e2e.KeysOfStatus
	if err := errors.Join(err, json.Unmarshal(a.Body, &status)); err != nil {
		r.T.Error(err)
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
	r.T.Helper()
	base := e2e.NewClient(r.T, r.Stack.BaseURL())
	c := e2e.NewCtl(r.T, r.Stack.BaseURL())
	for _, key := range keys {
		certificate := r.samples[key]
		if certificate == nil {
			r.T.Errorf("no certificate was signed by %s", key)
			continue
		}
		var shown struct {
			ID string `json:"cert_id"`
		}
		if err := json.Unmarshal(certificate, &shown); err != nil {
			r.T.Fatal(err)
		}
		e2e.Independently(r.T, base, certificate, true)
		c.File("certificate.json", certificate)
		if out, _ := c.Run(0, "verify", "certificate.json", "--base-url", base.Base); !strings.Contains(out, "valid") {
			r.T.Errorf("fairpactctl: %s", out)
		}
		var verdict e2e.Report
		base.Tool("verify_certificate", e2e.Body{"cert_id": shown.ID}).Into(r.T, &verdict)
		if !verdict.Valid {
			r.T.Errorf("over MCP: %+v", verdict)
		}
	}
}
