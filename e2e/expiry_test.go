package e2e

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// nonces commits and reveals a random.v1 deal whose round was out long ago.
func (c *client) nonces(chain interface{ RoundAt(int64) int64 }, commitDeadline, revealDeadline int64) (d *dealt, inTime bool) {
	c.t.Helper()
	d = c.create(timed(randomBody(2, chain.RoundAt(time.Now().Unix())-60, 0, 0), commitDeadline, revealDeadline))
	s := seal(c.t, body{"nonce": "c0ffee"})
	for _, action := range []string{"commit", "reveal"} {
		for p := range d.Tokens {
			if !d.attempt(action, p, s.act(action)) {
				return d, false
			}
		}
	}
	return d, true
}

// revealedEarlier takes seconds off the times at which a deal of two was revealed.
func (w witness) revealedEarlier(d *dealt, seconds int) {
	w.t.Helper()
	w.exec(2, "UPDATE reveals SET revealed_at = revealed_at - $2::bigint WHERE deal_id = $1", d.ID, seconds)
	w.exec(1, "UPDATE deals SET reveals_closed_at = reveals_closed_at - $2::bigint WHERE deal_id = $1 AND reveals_closed_at IS NOT NULL", d.ID, seconds)
}

// A random.v1 deal whose round cannot be had within the entropy window is
// EXPIRED: nobody is at fault, and there will never be a certificate.
func TestExpired(t *testing.T) {
	for name, workers := range map[string]int{"by the worker": 1, "by the call that meets it": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := own(t, func(o *localstack.Options) {
				o.Replicas = map[string]int{localstack.DeadlineWorker: workers}
				o.Env[""] = append(o.Env[""], "FAIRPACT_BEACON_RELAYS=http://127.0.0.1:1", "FAIRPACT_ENTROPY_WINDOW=2s")
			})
			c, w := newClient(t, stack.BaseURL()), database(t, stack)
			var d *dealt
			var expiry int64
			for lead, inTime := 2*time.Second, false; !inTime; lead *= 2 {
				deadline := after(lead)
				d, inTime = c.nonces(stack.Chain(), deadline-1, deadline)
				expiry = deadline + 2
			}
			// No relay answers, and a failed draw changes nothing.
			if a := c.do("POST", d.path("/entropy"), d.Tokens[0], nil); a.status != 502 && w.phase(d) == "REVEALING" {
				t.Errorf("entropy: %d %s", a.status, a.body)
			}
			w.pass(expiry)
			if workers > 0 {
				w.revealedEarlier(d, 60) // the worker looks when the draw is due
				eventually(t, "the worker expires the deal", patience, func() bool { return w.phase(d) == "EXPIRED" })
			}
			c.refused(409, "NO_CERTIFICATE", "GET", d.path("/certificate"), d.Tokens[0], nil)
			c.refused(409, "DEAL_ENDED", "POST", d.path("/entropy"), d.Tokens[0], nil)
			if v := d.view(); v.State != "EXPIRED" || v.CertificateID != nil || v.VoidFlakers != nil || v.ComputedAt != nil || string(v.Result) != "null" {
				t.Errorf("view: %+v", v)
			}
			if n := w.number("SELECT count(*) FROM certificates WHERE deal_id = $1", d.ID); n != 0 {
				t.Errorf("%d certificates of a deal that has none", n)
			}
		})
	}
}

// The worker draws by itself a minute after the last reveal; here that minute
// is taken off the stored times.
func TestWorkerDraws(t *testing.T) {
	stack := shared(t)
	c, w := newClient(t, stack.BaseURL()), database(t, stack)
	d, inTime := c.nonces(stack.Chain(), after(time.Minute), after(2*time.Minute))
	if !inTime {
		t.Fatal("a minute was not enough to play a deal of two")
	}
	if v := d.view(); v.State != "REVEALING" || v.RevealsClosedAt == nil {
		t.Fatalf("before the draw: %+v", v)
	}
	w.revealedEarlier(d, 60)
	eventually(t, "the worker draws", patience, func() bool { return w.phase(d) == "COMPUTED" })
	independently(t, c, d.certified(patience), true)
}
