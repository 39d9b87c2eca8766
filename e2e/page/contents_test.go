package page

import (
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// With FAIRPACT_KEEP_CONTENTS, params, inputs and seals of an ended deal are deleted some time later. Its certificate still
// verifies everywhere, the verifiers do not claim its result, and its page works.
func TestPageOfADealWithoutContents(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Env[""] = append(o.Env[""], "FAIRPACT_KEEP_CONTENTS=24h") })
	c, w, p := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack), newTab(t, stack.BaseURL())
	p.bears = "409" // GET /v1/deals/{id}/inputs
	hour := time.Hour
	points := e2e.Body{"valuations": e2e.Body{"car": 60, "boat": 40}}
	for name, made := range map[string]struct {
		body   e2e.Body
		inputs []e2e.Body
	}{
		"split":   {e2e.Retained(e2e.SplitBody(hour, 2*hour), "open", "standard"), []e2e.Body{points, points}},
		"shapley": {e2e.ShapleyBody(hour, 2*hour), []e2e.Body{{"accept": true}, {"accept": true}}},
		"draw":    {e2e.RandomBody(2, stack.Chain().RoundAt(time.Now().Unix())-20, hour, 2*hour), []e2e.Body{{"nonce": "aa"}, {"nonce": "bb"}}},
	} {
		d := c.Create(made.body)
		d.Play(made.inputs...)
		if name == "draw" {
			c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
		}
		d.Certified(e2e.DefaultTimeout)
		before := d.View()
		w.Exec(1, "UPDATE deals SET commit_deadline = commit_deadline - 180000, reveal_deadline = reveal_deadline - 180000, computed_at = computed_at - 180000, ended_at = ended_at - 180000 WHERE deal_id = $1", d.ID)
		e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI)) // it has cached the deadlines
		e2e.Must(t, stack.Restart(t.Context(), localstack.DeadlineWorker))
		e2e.Eventually(t, "the contents are deleted", e2e.DefaultTimeout, func() bool { return w.KeptInputs(d.ID) == 0 })
		view := d.View()
		if !view.ContentsDeleted || string(view.Params) != "{}" || string(view.Result) != string(before.Result) || len(before.Params) < 3 {
			t.Errorf("%s: the view is %+v, want the result without params", name, view)
		}
		c.Refused(409, "INPUTS_SEALED", "GET", d.Path("/inputs"), d.Tokens[0], nil)
		c.Refused(409, "DEAL_ENDED", "GET", d.Path("/declaration"), d.Tokens[0], nil)
		if report := c.Verify(*view.CertificateID); !report.Valid {
			t.Errorf("%s: the certificate does not verify: %+v", name, report)
		}
		bundle := c.Want(200, "GET", d.Path("/bundle"), d.Tokens[0], nil).Body
		file := e2e.File(t, bundle)
		if accepted, said := e2e.Verifier(t, "--bundle", file); !accepted {
			t.Errorf("%s: the Python verifier refuses the bundle: %s", name, said)
		}
		if said, _ := e2e.NewCtl(t, c.Base).Run(4, "verify", file); !strings.Contains(said, "not proven") {
			t.Errorf("%s: fairpactctl claims too much: %s", name, said)
		}
		p.take(d, 0, 1280, "light")
		p.reaches("done")
		p.until("the proof is there", "document.querySelector('#verify-bundle')")
		p.enter("#verify-bundle", "\r")
		p.until("the report is there", "document.querySelector('#report [data-claim]')")
		for claim, status := range p.claims("#report") { // a development key signs here, so nothing is proven
			if status != "not proven" {
				t.Errorf("%s: the page says that %s is %s, want not proven", name, claim, status)
			}
		}
	}
}
