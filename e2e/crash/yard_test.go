package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// crashTest is a stack with two replicas of each binary. Every case kills one process, the victim.
// The test stops the workers between cases, because they would finish deals that another process
// must finish.
type crashTest struct {
	t       *testing.T
	stack   *localstack.Stack
	w       e2e.DB
	redis   redis.Cmdable
	victim  string
	healthy *e2e.Client // calls the second deal-api, which is never killed
	target  *e2e.Client // calls the first deal-api, which is killed if it is the victim
}

func newCrashTest(t *testing.T, victim string) *crashTest {
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[localstack.LogServer] = e2e.PostgresGuard(t)
	})
	y := (&crashTest{stack: stack, redis: e2e.Cache(t, stack), victim: victim}).at(t)
	y.rest()
	y.start(e2e.SecondAPI, e2e.SecondLogEnv(stack)...)
	return y
}

func (y *crashTest) at(t *testing.T) *crashTest {
	here := *y
	here.t, here.w = t, e2e.OpenDB(t, y.stack)
	here.healthy, here.target = e2e.NewClient(t, y.stack.URL(e2e.SecondAPI)), e2e.NewClient(t, y.stack.URL(localstack.DealAPI))
	return &here
}

func (y *crashTest) start(name string, env ...string) {
	y.t.Helper()
	e2e.Must(y.t, y.stack.Restart(y.t.Context(), name, env...))
}

func (y *crashTest) rest() {
	y.t.Helper()
	for _, worker := range []string{localstack.DeadlineWorker, e2e.SecondWorker} {
		e2e.Must(y.t, y.stack.Stop(worker))
	}
}

func (y *crashTest) runCase(c crashes, cut crashPoint, f finisher) {
	y.t.Helper()
	y.rest() // stops workers that a failed previous case left running
	x, before := y.kill(c, cut)
	y.startAll(f.start)
	y.finish(x, f.via)
	y.rest()
	y.settled(x, before)
}

type crashCase struct {
	crashes
	cut crashPoint
}

// runCases runs all cases up to their crash points, and then starts the worker once to finish all
// deals. This saves time, because the worker waits some seconds before it issues a certificate.
func (y *crashTest) runCases(all []crashCase) {
	y.t.Helper()
	y.rest()
	deals, records := make([]*e2e.UnfinishedDeal, len(all)), make([]dealRecord, len(all))
	for i, c := range all {
		if !y.t.Run(c.name+"/"+c.cut.point, func(t *testing.T) { deals[i], records[i] = y.at(t).kill(c.crashes, c.cut) }) {
			return
		}
	}
	y.startAll([]string{localstack.DeadlineWorker})
	for _, x := range deals {
		y.finish(x, "")
	}
	y.rest()
	y.start(y.victim)
	for i, c := range all {
		y.t.Run(c.name+"/"+c.cut.point+" finished", func(t *testing.T) {
			here := y.at(t)
			deals[i].Deal.C = here.healthy
			here.settled(deals[i], records[i])
		})
	}
}

// kill runs a deal until the process y.victim dies at cut.point. It returns the deal, and what the
// database holds of the deal after the crash. If a deadline must pass before the recovery, kill
// waits for that deadline.
func (y *crashTest) kill(c crashes, cut crashPoint) (*e2e.UnfinishedDeal, dealRecord) {
	y.t.Helper()
	y.start(y.victim, "FAIRPACT_CRASH_AT="+cut.point)
	x := y.runUntilCrash(c.play)
	before := y.fate(x)
	if stage := before.stage(); stage != cut.stage {
		y.t.Errorf("the crash at %s left the deal in stage %s, want %s: %s", cut.point, stage, cut.stage, before)
	}
	if !c.locks {
		e2e.Must(y.t, y.redis.FlushAll(y.t.Context()).Err())
	}
	if !x.EndsByDeadline && x.From > 0 {
		e2e.WaitUntil(y.t, x.From)
	}
	return x, before
}

func (y *crashTest) startAll(names []string) {
	y.t.Helper()
	for _, name := range names {
		e2e.Must(y.t, y.stack.Start(y.t.Context(), name))
	}
}

// runUntilCrash runs a deal until the process y.victim dies at its crash point. If a deadline passes
// too early on a slow machine, runUntilCrash tries again with a new deal and later deadlines.
func (y *crashTest) runUntilCrash(play e2e.Scenario) *e2e.UnfinishedDeal {
	y.t.Helper()
	dead := y.stack.Ended(y.victim)
	for lead := time.Second; lead < e2e.DefaultTimeout; lead *= 2 {
		x := play(y.healthy, lead)
		if x == nil {
			continue
		}
		if x.EndsByDeadline {
			e2e.WaitUntil(y.t, x.From)
		}
		if y.victim != localstack.DeadlineWorker {
			a, err := x.Call(y.target)
			if err == nil && a.Code() == "DEADLINE_PASSED" {
				continue
			}
			if dies := y.victim == localstack.DealAPI; dies != (err != nil) || !dies && a.Status != 200 {
				y.t.Fatalf("the last call, with a crash of %s: %d %s (%v), want 200, or no answer if deal-api crashes", y.victim, a.Status, a.Body, err)
			}
		}
		select {
		case <-dead:
		case <-time.After(e2e.DefaultTimeout):
			y.t.Fatalf("%s has not reached its crash point within %s", y.victim, e2e.DefaultTimeout)
		}
		return x
	}
	y.t.Fatalf("no deal was ready before its deadline, with deadlines up to %s away", e2e.DefaultTimeout)
	return nil
}

// finish brings the deal to its published certificate, with calls to the deal-api that `via` names.
// If `via` is empty, the worker must first finish what the crash interrupted. The calls then go to
// the second deal-api.
func (y *crashTest) finish(x *e2e.UnfinishedDeal, via string) {
	y.t.Helper()
	caller := y.healthy
	if via != "" {
		caller = e2e.NewClient(y.t, y.stack.URL(via))
	}
	d := *x.Deal
	d.C = caller
	if x.Last.Action == "/commit" {
		e2e.Eventually(y.t, "all have committed", e2e.DefaultTimeout, func() bool {
			return via == "" && y.w.Phase(&d) == "REVEALING" || via != "" && d.View().State == "REVEALING"
		})
		for i, in := range x.Inputs {
			d.Reveal(i, in)
		}
	}
	if via == "" {
		e2e.Eventually(y.t, "certificate of "+d.ID, e2e.DefaultTimeout, func() bool {
			return y.w.Published(d.ID) != ""
		})
	}
	// The client retries the last call, which may have got no answer.
	a, err := x.Call(caller)
	if err != nil || a.Status != 200 {
		y.t.Errorf("retry of the last call: %d %s (%v), want 200", a.Status, a.Body, err)
	}
	if x.Last.Action == "/commit" || x.Last.Action == "/reveal" {
		if again, err := x.Call(y.healthy); err != nil || !bytes.Equal(again.Body, a.Body) {
			y.t.Errorf("POST %s again: %s (%v), want the replay %s", x.Last.Action, again.Body, err, a.Body)
		}
	}
	d.Certified(e2e.DefaultTimeout)
}

type dealRecord struct {
	phase     string
	result    []byte
	flakers   []int
	payload   []byte
	signature *string
	index     *int64 // leaf index in the certificate's row
	leaf      *int64 // index of the log leaf that holds the certificate's digest
	headed    bool   // a published tree head covers the leaf
}

func (y *crashTest) fate(x *e2e.UnfinishedDeal) (f dealRecord) {
	y.t.Helper()
	err := y.w.Pool.QueryRow(y.t.Context(), `SELECT phase, result, void_flakers, payload, signature, c.leaf_index, l.leaf_index,
		EXISTS (SELECT FROM translog.tree_heads WHERE tree_size > l.leaf_index)
		FROM deals LEFT JOIN certificates c USING (deal_id) LEFT JOIN translog.leaves l ON entry = sha256(payload) WHERE deal_id = $1`, x.Deal.ID).
		Scan(&f.phase, &f.result, &f.flakers, &f.payload, &f.signature, &f.index, &f.leaf, &f.headed)
	if err != nil {
		y.t.Fatal(err)
	}
	return f
}

func (f dealRecord) String() string {
	text := func(p any) string { b, _ := json.Marshal(p); return string(b) }
	return fmt.Sprintf("%s %s %s, %v, payload %s, signature %s, index %s, leaf %s", f.stage(), f.phase, f.result, f.flakers, f.payload, text(f.signature), text(f.index), text(f.leaf))
}

func (f dealRecord) stage() string {
	switch {
	case f.payload == nil:
		return "active"
	case f.index != nil:
		return "published"
	case f.headed:
		return "headed"
	case f.leaf != nil:
		return "logged"
	case f.signature != nil:
		return "signed"
	}
	return "ended"
}

// settled requires that the deal has its expected outcome, and that nothing stored at the crash
// has changed. deal-api and the independent verifier must accept the certificate.
func (y *crashTest) settled(x *e2e.UnfinishedDeal, before dealRecord) {
	y.t.Helper()
	after := y.fate(x)
	if after.stage() != "published" || after.phase != x.Outcome || !slices.Equal(after.flakers, x.Flakers) || *after.leaf != *after.index {
		y.t.Fatalf("after the recovery the deal is %s, want published, %s, with flakers %v and one leaf", after, x.Outcome, x.Flakers)
	}
	if before.payload != nil && (before.phase != after.phase || !bytes.Equal(before.result, after.result) || !bytes.Equal(before.payload, after.payload)) {
		y.t.Errorf("the deal's end changed after the crash, from %s to %s", before, after)
	}
	if before.signature != nil && *before.signature != *after.signature || before.leaf != nil && *before.leaf != *after.leaf {
		y.t.Errorf("signature or leaf changed after the crash, from %s to %s", before, after)
	}
	v := x.Deal.View()
	var shown struct {
		Result json.RawMessage
	}
	text := x.Deal.Certified(e2e.DefaultTimeout)
	e2e.Must(y.t, json.Unmarshal(text, &shown))
	if v.State != x.Outcome || !slices.Equal(v.VoidFlakers, x.Flakers) || !bytes.Equal(v.Result, shown.Result) || v.CertificateID == nil {
		y.t.Fatalf("the view is %+v, want %s, flakers %v and the result of the certificate %s", v, x.Outcome, x.Flakers, text)
	}
	if r := y.healthy.Verify(*v.CertificateID); !r.Valid || r.Outcome != x.Outcome {
		y.t.Errorf("the service verifies the certificate as %+v, want valid with outcome %s", r, x.Outcome)
	}
	x.Recomputed(y.t, y.healthy, text)
}
