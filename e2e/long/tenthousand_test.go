//go:build long

package long

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// inParallel does n things, 64 at a time, and stops at the first failure.
func inParallel(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(fmt.Errorf("%d: %w", i, err))
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

// SPEC 1, 8: random.v1 takes up to 10,000 parties.
func TestTenThousandParties(t *testing.T) {
	t.Parallel()
	const parties = 10_000
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	w := e2e.Database(t, stack)
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	// Time for a slow machine and the race detector; nothing here waits for it.
	b := e2e.Timed(e2e.RandomBody(parties, past, 0, 0), e2e.After(20*time.Minute), e2e.After(40*time.Minute))

	m := newMeter(stack)
	key := c.Key()
	d := c.Created(key, c.Want(201, "POST", "/v1/deals", key, b))
	if len(d.Tokens) != parties {
		t.Fatalf("%d tokens", len(d.Tokens))
	}
	t.Logf("create: %s", m.lap())

	secrets := make([]e2e.Sealed, parties)
	for i := range secrets {
		secrets[i] = e2e.Seal(t, e2e.Body{"nonce": fmt.Sprintf("%064x", i)})
	}
	m.lap()
	all := func(action string) {
		inParallel(t, parties, func(ctx context.Context, i int) error {
			a, err := c.Try(ctx, "POST", d.Path("/"+action), d.Tokens[i], secrets[i].Act(action))
			if err == nil && a.Status != 200 {
				err = fmt.Errorf("%s: %d %.300s", action, a.Status, a.Body)
			}
			return err
		})
		t.Logf("%d calls of %s: %s", parties, action, m.lap())
	}
	all("commit")
	if v := d.View(); v.State != "REVEALING" || v.CommitsClosedAt == nil || len(v.Parties) != parties {
		t.Fatalf("after all commits: %s, %v, %d parties", v.State, v.CommitsClosedAt, len(v.Parties))
	}
	t.Logf("view: %s", m.lap())
	all("reveal")

	var drawn struct {
		State         string
		Result        json.RawMessage
		CertificateID *string `json:"certificate_id"`
	}
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[parties-1], nil).Into(t, &drawn)
	t.Logf("entropy: %s", m.lap())
	if drawn.State != "COMPUTED" || drawn.CertificateID == nil {
		t.Fatalf("drawn: %s, certificate %v", drawn.State, drawn.CertificateID)
	}
	certificate := d.Certified(0)
	t.Logf("certificate of %d bytes: %s", len(certificate), m.lap())
	if r := c.Verify(*drawn.CertificateID); !r.Valid || r.Outcome != "COMPUTED" {
		t.Errorf("verification: %+v", r)
	}
	t.Logf("verify: %s", m.lap())

	// The stranger opens every commitment and recomputes the draw.
	inputs := make([]e2e.Body, parties)
	for i, s := range secrets {
		inputs[i] = e2e.Body{"input": s.Input, "salt": s.Salt}
	}
	accepted, said := e2e.Stranger(t, "--certificate", e2e.File(t, certificate), "--base-url", c.Base,
		"--inputs", e2e.File(t, inputs), "--params", e2e.File(t, b["algorithm_params"]))
	if !accepted {
		t.Errorf("independent verifier: %s", said)
	}
	t.Logf("independent verifier, all inputs: %s", m.lap())

	var result struct{ Winner int }
	e2e.Answer{Body: drawn.Result}.Into(t, &result)
	if result.Winner < 0 || result.Winner >= parties {
		t.Errorf("result: %.300s", drawn.Result)
	}
	w.Exactly(1, 1)
	e2e.Invariants(t, stack)
}
