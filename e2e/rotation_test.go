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
	"os/exec"
	"path/filepath"
	"slices"
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

const keyMargin = 5 * time.Second

// quickRotations lets a test rotate within seconds, in the processes and in
// fairpactctl.
var quickRotations = "FAIRPACT_TEST_KEY_MARGIN=" + keyMargin.String()

// keyholder is a stack whose keys are the operator's keys.json.
type keyholder struct {
	t     *testing.T
	stack *localstack.Stack
	ctl   *ctl
}

// newKeyholder starts a stack that signs with the key at a URI.
func newKeyholder(t *testing.T, uri string, change func(*localstack.Options)) *keyholder {
	t.Helper()
	k := &keyholder{t: t, ctl: newCtl(t, "")}
	k.ctl.env = append(k.ctl.env, quickRotations)
	k.ctl.run(0, "keys", "init", "--signer", uri, "--out", "keys.json")
	k.stack = own(t, func(o *localstack.Options) {
		o.Env[""] = append(append(o.Env[""], quickRotations), k.settings()...)
		if change != nil {
			change(o)
		}
	})
	k.ctl.env = append(k.ctl.env, "FAIRPACT_URL="+k.stack.BaseURL(), "DATABASE_URL="+k.stack.DatabaseURL())
	return k
}

// settings name the key set as the file is now.
func (k *keyholder) settings() []string {
	k.t.Helper()
	return []string{"FAIRPACT_KEY_SET_FILE=" + file(k.t, k.ctl.read("keys.json"))}
}

// keys runs fairpactctl keys with the operator's file.
func (k *keyholder) keys(code int, args ...string) string {
	k.t.Helper()
	args = append(append([]string{"keys"}, args...), "--file", "keys.json")
	if args[1] != "check" && args[1] != "show" {
		args = append(args, "--out", "keys.json")
	}
	out, errs := k.ctl.run(code, args...)
	return out + errs
}

// rollOut gives processes, all where none is named, the file as it is now, one
// after the other.
func (k *keyholder) rollOut(names ...string) {
	k.t.Helper()
	if len(names) == 0 {
		names = k.stack.Names()
	}
	env := k.settings()
	for _, name := range names {
		more := env
		if slices.Contains(k.stack.Names(), secondLog) && (name == secondAPI || name == secondWorker) {
			more = append(more, secondLogOf(k.stack)...)
		}
		if err := k.stack.Restart(k.t.Context(), name, more...); err != nil {
			k.t.Fatal(err)
		}
	}
}

// signsFrom is when the newest key of the file begins to sign.
func (k *keyholder) signsFrom() (from time.Time) {
	k.t.Helper()
	var set struct {
		Keys []struct {
			SignsFrom int64 `json:"signs_from"`
		}
	}
	if err := json.Unmarshal(k.ctl.read("keys.json"), &set); err != nil {
		k.t.Fatal(err)
	}
	for _, key := range set.Keys {
		if at := time.Unix(key.SignsFrom, 0); at.After(from) {
			from = at
		}
	}
	return from
}

// switched waits until the newest key signs.
func (k *keyholder) switched() { time.Sleep(time.Until(k.signsFrom())) }

// close closes a key; it is refused until no clock signs with it and nothing of it
// is pending.
func (k *keyholder) close(label string, more ...string) {
	k.t.Helper()
	eventually(k.t, "the key may be closed", 2*patience, func() bool {
		args := append([]string{"keys", "close", label, "--file", "keys.json", "--out", "keys.json"}, more...)
		cmd := exec.CommandContext(k.t.Context(), filepath.Join(bin, "fairpactctl"), args...)
		cmd.Dir, cmd.Env = k.ctl.dir, k.ctl.env
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "only a key that signs nowhere any more") && !strings.Contains(string(out), "wait for the log") {
			k.t.Fatalf("%v: %s", err, out)
		}
		return err == nil
	})
}

// rotation is a stack of two replicas of each binary under a stream of deals,
// while its signing key is replaced.
type rotation struct {
	*keyholder
	s    *stubborn
	logs []*client // the read ports of both log-servers

	deals, heads atomic.Int64 // checked
	mu           sync.Mutex
	all          []*soaked
	samples      map[string][]byte // certificates by the key that signed them
}

// A rotation that is postponed, rolled out one process at a time, switches by
// itself and is closed. Every certificate and every tree head that anybody
// answers verifies at that moment under the status of every replica, by a client
// that knows no more than the contract.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	const deals = 25 // between two steps
	oldURI, oldKey := keyFile(t)
	newURI, newKey := keyFile(t)
	r := &rotation{samples: map[string][]byte{}, keyholder: newKeyholder(t, oldURI, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})}
	stack := r.stack
	r.s = &stubborn{doors: []*client{newClient(t, stack.URL(localstack.DealAPI)), newClient(t, stack.URL(secondAPI))}}
	r.logs = []*client{newClient(t, stack.LogReadURL(localstack.LogServer)), newClient(t, stack.LogReadURL(secondLog))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	r.rollOut() // the second deal-api and worker to the second log
	roll := time.Since(began)
	streams := r.streams(ctx)
	r.passes(deals)

	// On half of the processes when it is postponed.
	r.keys(0, "rotate", "--to", newURI, "--in", "1h")
	r.rollOut(localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker)
	if out := r.keys(1, "check"); !strings.Contains(out, "FAIL processes") || !strings.Contains(out, "3 of 6 have another key set") {
		t.Error(out)
	}
	r.keys(0, "rotate", "--to", newURI, "--in", (4*roll + 4*keyMargin).String())
	r.rollOut()
	// Where the machine became slow: once more.
	for i := time.Duration(8); time.Until(r.signsFrom()) < 2*keyMargin; i *= 2 {
		r.keys(0, "rotate", "--to", newURI, "--in", (i*roll + 4*keyMargin).String())
		r.rollOut()
	}
	if r.samples[newKey] != nil {
		t.Error("the new key has signed before its time")
	}
	if out := r.keys(0, "check"); !strings.Contains(out, "6 run (2 deadline-worker, 2 deal-api, 2 log-server), all with the key set") || !strings.Contains(out, "next: nothing: "+newKey+" signs from ") {
		t.Error(out)
	}
	r.switched()
	r.passes(deals)
	eventually(t, "the new key signs", patience, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.samples[newKey] != nil })
	r.close(oldKey)
	r.rollOut()
	r.passes(deals)
	cancel()
	streams.Wait()

	database(t, stack).converged()
	invariants(t, stack)
	// Every certificate was verified as it came; one deal in ten is asked for all
	// its answers once more.
	for i := 0; i < len(r.all); i += 10 {
		r.all[i].ctx = t.Context()
		if err := r.all[i].ended(); err != nil {
			t.Errorf("deal %s: %v", r.all[i].id, err)
		}
	}
	r.agreed(oldKey, newKey)
	if out := r.keys(0, "check"); !strings.Contains(out, "next: nothing: one key signs") {
		t.Error(out)
	}
	t.Logf("%d deals, %d certificates and %d tree heads checked, %d requests", len(r.all), r.deals.Load(), r.heads.Load(), r.s.attempts.Load())
}

// passes waits until so many more deals have their checked certificate.
func (r *rotation) passes(deals int64) {
	r.t.Helper()
	until := r.deals.Load() + deals
	for at := r.deals.Load(); at < until; at = r.deals.Load() {
		eventually(r.t, "another deal ends", 2*patience, func() bool { return r.deals.Load() > at || r.t.Failed() })
		if r.t.Failed() {
			r.t.FailNow()
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
					r.t.Error(err)
					return
				}
			}
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
	a, err := r.door(context.WithoutCancel(r.t.Context()), 0, "/v1/status")
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
