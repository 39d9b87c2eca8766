package crash

import (
	"os"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// crashPoint names a crash point (see internal/platform/crash). stage is the stage of a deal after a crash at
// that point (see dealRecord.stage).
type crashPoint struct{ point, stage string }

// ending lists the crash points of deal-api and the worker, from a deal's last input to its
// published certificate.
var ending = []crashPoint{
	{"escrow.before-end", "active"},
	{"escrow.ended", "ended"},
	{"escrow.signed", "ended"},
	{"escrow.appended", "headed"},
	{"escrow.published", "published"},
}

// finisher says which processes finish a deal after the crash. The test starts only the processes
// in `start`. If `via` is not empty, the test also calls the deal-api that `via` names.
type finisher struct {
	name  string
	start []string
	via   string
}

var finishers = map[string][]finisher{
	localstack.DealAPI: {
		{"itself", []string{localstack.DealAPI}, localstack.DealAPI},
		{"another", nil, e2e.SecondAPI},
		{"worker", []string{localstack.DeadlineWorker}, ""},
	},
	localstack.DeadlineWorker: {
		{"itself", []string{localstack.DeadlineWorker}, ""},
		{"another", []string{e2e.SecondWorker}, ""},
		{"caller", nil, e2e.SecondAPI},
	},
	localstack.LogServer: {
		{"itself", []string{localstack.LogServer}, localstack.DealAPI},
		{"another", nil, e2e.SecondAPI}, // this deal-api calls the second log-server
		{"worker", []string{localstack.LogServer, localstack.DeadlineWorker}, ""},
	},
}

// crashes is a scenario with the crash points at which the test kills a process, the victim. After
// a crash, one of the victim's finishers completes the deal. The test runs every crash point once
// with each finisher. If `turns` is true, it runs every crash point only once, and each crash point
// takes the next finisher in the list.
type crashes struct {
	name  string
	play  e2e.Scenario
	cuts  []crashPoint
	turns bool
	// If locks is true, the locks of the dead process stay in Redis. Otherwise the test empties
	// Redis after the crash.
	locks bool
}

// The tests below kill a process at every crash point (SPEC 4 rule 4). Every deal must get exactly
// one certificate, signature and leaf. A deal that is COMPUTED or VOID at the crash must keep its
// state and result.

func TestCrashDealAPI(t *testing.T) {
	t.Parallel()
	y := newCrashTest(t, localstack.DealAPI)
	past := y.stack.Chain().RoundAt(time.Now().Unix()) - 10
	revealed, committed := crashPoint{"escrow.revealed", "active"}, crashPoint{"escrow.committed", "active"}
	waits := []crashPoint{revealed, {"escrow.signed", "ended"}, {"escrow.appended", "headed"}}
	y.crash([]crashes{
		{name: "last commit", play: lastCommit, cuts: []crashPoint{committed, {"idempotency.effect", "active"}}},
		{name: "last commit, late", play: lateLastCommit, cuts: []crashPoint{committed}, turns: true},
		{name: "last sealed commit", play: lastSealedCommit(y.stack.Chain()), cuts: []crashPoint{{"escrow.closed", "active"}}},
		{name: "last reveal", play: e2e.LastReveal, cuts: append([]crashPoint{revealed, {"idempotency.effect", "published"}}, ending...)},
		{name: "last reveal, locked", play: e2e.LastReveal, cuts: waits, turns: true, locks: true},
		{name: "last reveal, late", play: lateLastReveal, cuts: []crashPoint{revealed}, turns: true},
		{name: "rejection", play: e2e.Rejection, cuts: ending[1:], turns: true},
		{name: "draw", play: e2e.Draw(past), cuts: ending, turns: true},
		{name: "missed commit", play: e2e.MissedCommit, cuts: ending, turns: true},
		{name: "missed reveal", play: e2e.MissedReveal, cuts: ending[:2], turns: true},
	})
	y.replays()
}

func TestCrashWorker(t *testing.T) {
	t.Parallel()
	y := newCrashTest(t, localstack.DeadlineWorker)
	y.crash([]crashes{
		{name: "missed commit", play: e2e.MissedCommit, cuts: ending, turns: true},
		{name: "missed reveal", play: e2e.MissedReveal, cuts: ending, turns: true, locks: true},
		{name: "seals", play: sealedRound(y.stack.Chain()), cuts: []crashPoint{{"escrow.unsealed", "active"}}, turns: true},
	})
}

func TestCrashLogServer(t *testing.T) {
	t.Parallel()
	steps := []crashPoint{
		{"log.before-commit", "signed"},
		{"log.sequenced", "logged"},
		{"log.guarded", "logged"},
		{"log.signed", "logged"},
		{"log.published", "headed"},
	}
	newCrashTest(t, localstack.LogServer).crash([]crashes{
		{name: "last reveal", play: e2e.LastReveal, cuts: steps},
		{name: "rejection", play: e2e.Rejection, cuts: steps, turns: true, locks: true},
		{name: "missed commit", play: e2e.MissedCommit, cuts: steps, turns: true},
	})
}

func (y *crashTest) crash(all []crashes) {
	turn := 0
	var left []crashCase
	for _, c := range all {
		for _, cut := range c.cuts {
			for i, f := range finishers[y.victim] {
				if c.turns && i != turn%len(finishers[y.victim]) {
					continue
				}
				if c.name == "draw" && cut.stage == "active" && f.via == "" {
					continue // too slow: the worker draws no earlier than a minute after the last reveal
				}
				if y.victim == localstack.DealAPI && f.via == "" && !c.locks {
					left = append(left, crashCase{c, cut})
					continue
				}
				y.t.Run(c.name+"/"+cut.point+"/"+f.name, func(t *testing.T) { y.at(t).runCase(c, cut, f) })
			}
			turn++
		}
	}
	if len(left) > 0 {
		y.t.Run("worker", func(t *testing.T) { y.at(t).runCases(left) })
	}
	y.start(y.victim)
	y.closed()
	e2e.OpenDB(y.t, y.stack).Converged()
	e2e.Invariants(y.t, y.stack)
}

func lastCommit(c *e2e.Client, _ time.Duration) *e2e.UnfinishedDeal {
	x := e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 1, 0, e2e.AnnsValues, e2e.BobsValues)
	return x.SetLastCall("/commit", 1, e2e.Body{"commitment": x.Inputs[1].Commitment})
}

// lastSealedCommit is a scenario whose last call also puts the closing of the commitments into the log.
func lastSealedCommit(chain drand.Chain) e2e.Scenario {
	return func(c *e2e.Client, _ time.Duration) *e2e.UnfinishedDeal {
		b := e2e.SplitBody(time.Hour, 2*time.Hour)
		by := b["commit_deadline"].(int64)
		x := e2e.Open(c, b, 0, 0, e2e.AnnsValues, e2e.BobsValues)
		c.Want(200, "POST", x.Deal.Path("/commit"), x.Deal.Tokens[0], x.Inputs[0].Timelocked(chain, x.Deal, 0, by))
		return x.SetLastCall("/commit", 1, x.Inputs[1].Timelocked(chain, x.Deal, 1, by))
	}
}

// closed requires that the worker stores the closing of every deal with seals, also of deals that ended
// before it could. e2e.Invariants compares the closings with the leaves of the log.
func (y *crashTest) closed() {
	y.t.Helper()
	y.start(localstack.DeadlineWorker)
	e2e.Eventually(y.t, "the closings are stored", 2*e2e.DefaultTimeout, func() bool {
		return e2e.OpenDB(y.t, y.stack).Number(`SELECT count(*) FROM deals
			WHERE commits_closed_at IS NOT NULL AND closing_leaf IS NULL AND seal_time > extract(epoch FROM clock_timestamp())`) == 0
	})
}

// lateLastCommit and lateLastReveal are scenarios in which all parties act in time. deal-api is
// killed during the last commit or reveal, and the next call comes after the deadline. No party may
// become a flaker.
func lateLastCommit(c *e2e.Client, lead time.Duration) *e2e.UnfinishedDeal {
	at := e2e.After(lead)
	x := e2e.Near(c, at, at+3600)
	if x == nil || !x.Commits(1) {
		return nil
	}
	x.From = at
	return x.SetLastCall("/commit", 1, e2e.Body{"commitment": x.Inputs[1].Commitment})
}

func lateLastReveal(c *e2e.Client, lead time.Duration) *e2e.UnfinishedDeal {
	at := e2e.After(lead)
	x := e2e.Near(c, at, at+1)
	if x == nil || !x.Commits(2) || !x.Reveals(1) {
		return nil
	}
	x.From = at + 1
	return x.Revealing(1)
}

// sealedRound is a scenario in which both parties leave after they have sealed.
func sealedRound(chain drand.Chain) e2e.Scenario {
	return func(c *e2e.Client, lead time.Duration) *e2e.UnfinishedDeal {
		at := e2e.After(lead)
		x := e2e.Near(c, at, at+140)
		if x == nil {
			return nil
		}
		for party, in := range x.Inputs {
			if !x.Deal.Attempt("commit", party, in.Timelocked(chain, x.Deal, party, at)) {
				return nil
			}
		}
		x.EndsByDeadline, x.From = true, chain.RoundTime(timelock.RoundOf(chain, at))
		x.Last.Token = x.Deal.Tokens[0]
		return x
	}
}
