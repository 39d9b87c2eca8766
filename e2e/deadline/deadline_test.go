package deadline

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// SPEC 1.4, 3: a missed deadline makes the deal VOID, and its certificate names exactly
// the parties that failed to act. The worker publishes the certificate even if no client makes
// a call.
func TestMissedDeadlineVoidsAndNamesTheFlakers(t *testing.T) {
	for action, play := range map[string]e2e.Scenario{"commit": e2e.MissedCommit, "reveal": e2e.MissedReveal} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			stack := e2e.Shared(t)
			c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
			x := e2e.Played(t, c, play)
			d := x.Deal
			// A client's call would end the deal before the worker does, so the test reads only the database.
			var certID string
			e2e.Eventually(t, "the worker publishes the certificate", e2e.DefaultTimeout, func() bool {
				certID = w.Published(d.ID)
				return certID != ""
			})
			t.Logf("published %s after the deadline", time.Since(time.Unix(x.From, 0)).Round(time.Millisecond))
			if r := c.Verify(certID); !r.Valid || r.Outcome != "VOID" {
				t.Errorf("GET /v1/verify/%s: %+v, want valid with outcome VOID", certID, r)
			}
			certificate := d.Certified(0)
			e2e.RequireIndependentVerdict(t, c, certificate, true)
			if v := d.View(); v.State != "VOID" || !slices.Equal(v.VoidFlakers, x.Flakers) || string(v.Result) != "null" || v.CertificateID == nil || *v.CertificateID != certID {
				t.Errorf("the view is %+v, want VOID with flakers %v, no result and certificate %s", v, x.Flakers, certID)
			}
			var named struct {
				Outcome     string
				VoidFlakers []int `json:"void_flakers"`
			}
			e2e.Answer{Body: certificate}.Into(t, &named)
			if named.Outcome != "VOID" || !slices.Equal(named.VoidFlakers, x.Flakers) {
				t.Errorf("the certificate has %+v, want VOID with flakers %v", named, x.Flakers)
			}
			late := x.Flakers[0]
			c.Refused(409, "DEADLINE_PASSED", "POST", d.Path("/"+action), d.Tokens[late], x.Inputs[late].Act(action))
		})
	}
}

// A random.v1 deal whose beacon round cannot be fetched within the entropy window becomes
// EXPIRED. It gets no certificate, and no party is listed as at fault (void_flakers).
func TestExpired(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], "FAIRPACT_BEACON_RELAYS=http://127.0.0.1:1", "FAIRPACT_ENTROPY_WINDOW=2s")
	})
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	var d *e2e.CreatedDeal
	var expiry int64
	for lead, inTime := 2*time.Second, false; !inTime; lead *= 2 {
		deadline := e2e.After(lead)
		d, inTime = c.RevealedRandomDeal(stack.Chain(), deadline-1, deadline)
		expiry = deadline + 2
	}
	if a := c.Do("POST", d.Path("/entropy"), d.Tokens[0], nil); a.Status != 502 && w.Phase(d) == "REVEALING" {
		t.Errorf("POST entropy without a relay: %d %s, want 502", a.Status, a.Body)
	}
	w.Pass(expiry)
	w.RevealedEarlier(d, 60) // the worker expires a deal no earlier than a minute after its last reveal
	e2e.Eventually(t, "the worker expires the deal", e2e.DefaultTimeout, func() bool { return w.Phase(d) == "EXPIRED" })
	c.Refused(409, "NO_CERTIFICATE", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	c.Refused(409, "DEAL_ENDED", "POST", d.Path("/entropy"), d.Tokens[0], nil)
	if v := d.View(); v.State != "EXPIRED" || v.CertificateID != nil || v.VoidFlakers != nil || v.ComputedAt != nil || string(v.Result) != "null" {
		t.Errorf("the view is %+v, want EXPIRED without certificate, flakers, computed_at and result", v)
	}
	if n := w.Number("SELECT count(*) FROM certificates WHERE deal_id = $1", d.ID); n != 0 {
		t.Errorf("the EXPIRED deal has %d certificates, want 0", n)
	}
}

// The worker draws a minute after the last reveal. To save that minute, the test moves the stored
// times of the reveals back.
func TestWorkerDraws(t *testing.T) {
	stack := e2e.Shared(t)
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	d, inTime := c.RevealedRandomDeal(stack.Chain(), e2e.After(time.Minute), e2e.After(2*time.Minute))
	if !inTime {
		t.Fatal("a two-party deal was not revealed within its deadlines of 1 and 2 minutes")
	}
	if v := d.View(); v.State != "REVEALING" || v.RevealsClosedAt == nil {
		t.Fatalf("before the draw the view is %+v, want REVEALING with all reveals", v)
	}
	w.RevealedEarlier(d, 60)
	e2e.Eventually(t, "the worker draws", e2e.DefaultTimeout, func() bool { return w.Phase(d) == "COMPUTED" })
	e2e.RequireIndependentVerdict(t, c, d.Certified(e2e.DefaultTimeout), true)
}
