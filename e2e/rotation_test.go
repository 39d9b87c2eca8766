package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// keysOfStatus are the members of /v1/status that a client verifies with.
type keysOfStatus struct {
	Pubkey string
	Legacy []string `json:"legacy_pubkeys"`
}

func (s keysOfStatus) keys() (*signing.KeySet, error) { return signing.NewKeySet(s.Pubkey, s.Legacy) }

// keyFile makes a signing key and gives its URI and its published label.
func keyFile(t testing.TB) (uri, label string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := signing.Open(t.Context(), "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + path, signer.PublicKey()
}

// rotation is a stack of two replicas of each binary under a stream of deals,
// while its signing key is replaced.
type rotation struct {
	t     *testing.T
	stack *localstack.Stack
	s     *stubborn
	logs  []*client // the read ports of both log-servers

	deals, heads atomic.Int64 // checked
	mu           sync.Mutex
	all          []*soaked
	samples      map[string][]byte // certificates by the key that signed them
}

// The key goes current, next, retired, closed, and each step is rolled out one
// process at a time, as Kubernetes does. Every certificate and every tree head
// that anybody answers verifies at that moment under the status of every
// replica, by a client that knows no more than the contract.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	oldURI, oldKey := keyFile(t)
	newURI, newKey := keyFile(t)
	set := func(keys ...body) string { return file(t, body{"keys": keys}) }
	current := func(key string) body { return body{"pubkey": key, "state": "current"} }
	retired := body{"pubkey": oldKey, "state": "retired", "retired_at": time.Now().Unix()}
	first := set(current(oldKey))
	stack := own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[""] = append(o.Env[""], "FAIRPACT_SIGNING_KEY="+oldURI, "FAIRPACT_KEY_SET_FILE="+first)
	})
	r := &rotation{t: t, stack: stack, samples: map[string][]byte{},
		s:    &stubborn{doors: []*client{newClient(t, stack.URL(localstack.DealAPI)), newClient(t, stack.URL(secondAPI))}},
		logs: []*client{newClient(t, stack.LogReadURL(localstack.LogServer)), newClient(t, stack.LogReadURL(secondLog))},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	r.roll(ctx, oldURI, first) // the second deal-api and worker to the second log
	over := make(chan struct{})
	streams := r.streams(ctx, over)

	r.passes(ctx, 500)
	r.roll(ctx, oldURI, set(current(oldKey), body{"pubkey": newKey, "state": "next"}))
	r.passes(ctx, 500)
	r.roll(ctx, newURI, set(current(newKey), retired))
	r.passes(ctx, 500)
	// Closed at the present size: by now nothing waits under the old key.
	retired["tree_size"] = r.treeSize(ctx)
	r.roll(ctx, newURI, set(current(newKey), retired))
	r.passes(ctx, 500)
	close(over)
	streams.Wait()

	database(t, stack).converged()
	invariants(t, stack)
	// Every certificate was verified as it came; one deal in twenty is asked for
	// all its answers once more.
	for i := 0; i < len(r.all); i += 20 {
		if err := r.all[i].ended(); err != nil {
			t.Errorf("deal %s: %v", r.all[i].id, err)
		}
	}
	r.agreed(oldKey, newKey)
	t.Logf("%d deals, %d certificates and %d tree heads checked, %d requests", len(r.all), r.deals.Load(), r.heads.Load(), r.s.attempts.Load())
}

// roll gives every process a key and a key set, one after the other.
func (r *rotation) roll(ctx context.Context, uri, set string) {
	r.t.Helper()
	second := secondLogOf(r.stack)
	for _, name := range r.stack.Names() {
		env := []string{"FAIRPACT_SIGNING_KEY=" + uri, "FAIRPACT_KEY_SET_FILE=" + set}
		if name == secondAPI || name == secondWorker {
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
	until := r.deals.Load() + deals
	eventually(r.t, "the deals go on", 2*patience, func() bool { return r.deals.Load() >= until || ctx.Err() != nil || r.t.Failed() })
	if r.t.Failed() {
		r.t.FailNow()
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
	d := &soaked{t: r.t, s: r.s, ctx: ctx}
	if err := d.whole(splitBody(time.Hour, 2*time.Hour), false, annsValues, bobsValues); err != nil {
		return err
	}
	certificate := d.promises[len(d.promises)-1].answer.body
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
	for i := range r.s.doors {
		a, err := r.door(ctx, i, "/v1/verify/"+certID)
		if err != nil {
			return err
		}
		var verdict report
		if err := json.Unmarshal(a.body, &verdict); err != nil || a.status != 200 || !verdict.Valid {
			return fmt.Errorf("%s: deal-api %d says %d %s", certID, i+1, a.status, a.body)
		}
	}
	return nil
}

// head reads the newest tree head where it is published and through a deal-api.
func (r *rotation) head(ctx context.Context, i int) error {
	for _, c := range []*client{r.logs[i], r.s.doors[i]} {
		a, err := insist(ctx, c, "/v1/log/tree-head")
		if err != nil {
			return err
		}
		var h struct {
			Size      int64  `json:"tree_size"`
			Root      string `json:"root_hash"`
			Signature string
		}
		if err := json.Unmarshal(a.body, &h); err != nil {
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
	if err := errors.Join(err, json.Unmarshal(a.body, &h)); err != nil {
		r.t.Fatal(err)
	}
	return h.Size
}

// accepted holds a signature that was answered to what each replica publishes.
func (r *rotation) accepted(ctx context.Context, what string, message []byte, signature string) error {
	for i := range r.s.doors {
		a, err := r.door(ctx, i, "/v1/status")
		if err != nil {
			return err
		}
		var status keysOfStatus
		if err := json.Unmarshal(a.body, &status); err != nil {
			return err
		}
		keys, err := status.keys()
		if err != nil {
			return err
		}
		if err := keys.Verify(message, signature); err != nil {
			return fmt.Errorf("%s %.200s, signed %.40s…: deal-api %d publishes %s and %v: %w", what, message, signature, i+1, status.Pubkey, status.Legacy, err)
		}
	}
	return nil
}

func (r *rotation) door(ctx context.Context, i int, path string) (answer, error) {
	return insist(ctx, r.s.doors[i], path)
}

// insist reads from one process, which may be restarting.
func insist(ctx context.Context, c *client, path string) (answer, error) {
	only := &stubborn{doors: []*client{c}}
	return only.again(ctx, promise{method: "GET", path: path})
}

// signers are the keys, of all that any replica publishes now, that made a
// signature.
func (r *rotation) signers(message []byte, signature string) (made []string) {
	a, err := r.door(r.t.Context(), 0, "/v1/status")
	var status keysOfStatus
	if err := errors.Join(err, json.Unmarshal(a.body, &status)); err != nil {
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
	base := newClient(r.t, r.stack.BaseURL())
	c := newCtl(r.t, r.stack.BaseURL())
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
		independently(r.t, base, certificate, true)
		c.file("certificate.json", certificate)
		if out, _ := c.run(0, "verify", "certificate.json", "--base-url", base.base); !strings.Contains(out, "valid") {
			r.t.Errorf("fairpactctl: %s", out)
		}
		var verdict report
		base.tool("verify_certificate", body{"cert_id": shown.ID}).into(r.t, &verdict)
		if !verdict.Valid {
			r.t.Errorf("over MCP: %+v", verdict)
		}
	}
}
