//go:build long

package long

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/e2e"
)

// SPEC 1, 8: random.v1 takes up to 10,000 parties.
func TestTenThousandParties(t *testing.T) {
	t.Parallel()
	const parties = 10_000
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	w := e2e.OpenDB(t, stack)
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	// The deadlines are late enough for a slow machine with the race detector. The test does not
	// wait for the deadlines.
	b := e2e.Timed(e2e.RandomBody(parties, past, 0, 0), e2e.After(20*time.Minute), e2e.After(40*time.Minute))

	key := c.Key()
	d := c.Created(key, c.Want(201, "POST", "/v1/deals", key, b))
	if len(d.Tokens) != parties {
		t.Fatalf("%d invite tokens, want %d", len(d.Tokens), parties)
	}

	secrets := make([]e2e.Sealed, parties)
	for i := range secrets {
		secrets[i] = e2e.Seal(t, e2e.Body{"nonce": fmt.Sprintf("%064x", i)})
	}
	all := func(action string) {
		calls, ctx := errgroup.WithContext(t.Context())
		calls.SetLimit(64)
		for i := range parties {
			calls.Go(func() error {
				a, err := c.Try(ctx, "POST", d.Path("/"+action), d.Tokens[i], secrets[i].Act(action))
				if err == nil && a.Status != 200 {
					err = fmt.Errorf("%s of party %d: %d %.300s, want 200", action, i, a.Status, a.Body)
				}
				return err
			})
		}
		e2e.Must(t, calls.Wait())
	}
	all("commit")
	if v := d.View(); v.State != "REVEALING" || v.CommitsClosedAt == nil || len(v.Parties) != parties {
		t.Fatalf("after all commits: %s, commits_closed_at %v, %d parties; want REVEALING, a time and %d", v.State, v.CommitsClosedAt, len(v.Parties), parties)
	}
	all("reveal")

	var drawn struct {
		State         string
		CertificateID *string `json:"certificate_id"`
	}
	c.Want(200, "POST", d.Path("/entropy"), d.Tokens[parties-1], nil).Into(t, &drawn)
	if drawn.State != "COMPUTED" || drawn.CertificateID == nil {
		t.Fatalf("after the draw: %s, certificate %v, want COMPUTED and an id", drawn.State, drawn.CertificateID)
	}
	certificate := d.Certified(0)
	if r := c.Verify(*drawn.CertificateID); !r.Valid || r.Outcome != "COMPUTED" {
		t.Errorf("verification report %+v, want valid with outcome COMPUTED", r)
	}

	var bundle struct {
		Openings []struct{ Salt string } `json:"openings"`
	}
	c.Want(200, "GET", d.Path("/bundle"), d.Tokens[0], nil).Into(t, &bundle)
	if len(bundle.Openings) != parties || bundle.Openings[parties-1].Salt != secrets[parties-1].Salt {
		t.Errorf("the bundle has %d openings, want those of all %d parties", len(bundle.Openings), parties)
	}

	inputs := make([]e2e.Body, parties)
	for i, s := range secrets {
		inputs[i] = e2e.Body{"input": s.Input, "salt": s.Salt}
	}
	accepted, said := e2e.Verifier(t, "--certificate", e2e.File(t, certificate), "--base-url", c.Base,
		"--inputs", e2e.File(t, inputs), "--params", e2e.File(t, b["algorithm_params"]))
	if !accepted {
		t.Errorf("the independent verifier rejects the certificate: %s", said)
	}

	w.Exactly(1, 1)
	e2e.Invariants(t, stack)
}
