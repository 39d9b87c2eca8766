package deadline

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// A random.v1 deal whose round cannot be fetched within the entropy window is
// EXPIRED: nobody is at fault, and there will never be a certificate.
func TestExpired(t *testing.T) {
	for name, workers := range map[string]int{"by the worker": 1, "by the call that meets it": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := e2e.Own(t, func(o *localstack.Options) {
				o.Replicas = map[string]int{localstack.DeadlineWorker: workers}
				o.Env[""] = append(o.Env[""], "FAIRPACT_BEACON_RELAYS=http://127.0.0.1:1", "FAIRPACT_ENTROPY_WINDOW=2s")
			})
			c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
			var d *e2e.Dealt
			var expiry int64
			for lead, inTime := 2*time.Second, false; !inTime; lead *= 2 {
				deadline := e2e.After(lead)
				d, inTime = c.Nonces(stack.Chain(), deadline-1, deadline)
				expiry = deadline + 2
			}
			// No relay answers, and a failed draw changes nothing.
			if a := c.Do("POST", d.Path("/entropy"), d.Tokens[0], nil); a.Status != 502 && w.Phase(d) == "REVEALING" {
				t.Errorf("entropy: %d %s", a.Status, a.Body)
			}
			w.Pass(expiry)
			if workers > 0 {
				w.RevealedEarlier(d, 60) // the worker looks when the draw is due
				e2e.Eventually(t, "the worker expires the deal", e2e.Patience, func() bool { return w.Phase(d) == "EXPIRED" })
			}
			c.Refused(409, "NO_CERTIFICATE", "GET", d.Path("/certificate"), d.Tokens[0], nil)
			c.Refused(409, "DEAL_ENDED", "POST", d.Path("/entropy"), d.Tokens[0], nil)
			if v := d.View(); v.State != "EXPIRED" || v.CertificateID != nil || v.VoidFlakers != nil || v.ComputedAt != nil || string(v.Result) != "null" {
				t.Errorf("view: %+v", v)
			}
			if n := w.Number("SELECT count(*) FROM certificates WHERE deal_id = $1", d.ID); n != 0 {
				t.Errorf("%d certificates of a deal that has none", n)
			}
		})
	}
}

// The worker draws by itself a minute after the last reveal; here that minute
// is taken off the stored times.
func TestWorkerDraws(t *testing.T) {
	stack := e2e.Shared(t)
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.Database(t, stack)
	d, inTime := c.Nonces(stack.Chain(), e2e.After(time.Minute), e2e.After(2*time.Minute))
	if !inTime {
		t.Fatal("a minute was not enough to play a deal of two")
	}
	if v := d.View(); v.State != "REVEALING" || v.RevealsClosedAt == nil {
		t.Fatalf("before the draw: %+v", v)
	}
	w.RevealedEarlier(d, 60)
	e2e.Eventually(t, "the worker draws", e2e.Patience, func() bool { return w.Phase(d) == "COMPUTED" })
	e2e.Independently(t, c, d.Certified(e2e.Patience), true)
}
