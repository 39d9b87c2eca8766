package deadline

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

type racer struct {
	d       *e2e.CreatedDeal
	party   int
	sealed  e2e.Sealed
	through *e2e.Client
	before  time.Duration // from the call to the deadline; negative if the call is late

	status int
	code   string
}

func storm(t testing.TB, racers []*racer, action string, deadline int64) {
	t.Helper()
	var group sync.WaitGroup
	for _, r := range racers {
		group.Go(func() {
			time.Sleep(time.Until(time.Unix(deadline, 0).Add(-r.before)))
			call := func() (e2e.Answer, error) {
				return r.through.Try(t.Context(), "POST", r.d.Path("/"+action), r.d.Tokens[r.party], r.sealed.Act(action), "Idempotency-Key", action)
			}
			a, err := call()
			if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) { // the server closes a connection that has sent nothing for some seconds
				a, err = call()
			}
			if err != nil {
				t.Errorf("%s of party %d of deal %s: %v", action, r.party, r.d.ID, err)
			}
			r.status, r.code = a.Status, a.Code()
		})
	}
	group.Wait()
}

// judge requires that void_flakers of each deal lists exactly the parties whose calls were refused.
// A deal with a refused call must be VOID, and any other deal must be in the state `unvoided`.
// judge reports whether some calls were accepted and some refused.
func judge(t testing.TB, racers []*racer, unvoided string) (raced bool) {
	t.Helper()
	refused, statuses := map[*e2e.CreatedDeal][]int{}, map[int]int{}
	for _, r := range racers {
		statuses[r.status]++
		switch {
		case r.status == 409 && r.code == "DEADLINE_PASSED":
			refused[r.d] = append(refused[r.d], r.party)
		case r.status == 200:
			refused[r.d] = append(refused[r.d], nil...) // creates the entry of a deal without refusals
		default:
			t.Errorf("party %d of deal %s got %d %s, want 200 or 409 DEADLINE_PASSED", r.party, r.d.ID, r.status, r.code)
		}
	}
	t.Logf("answers: %v", statuses)
	for d, flakers := range refused {
		slices.Sort(flakers)
		v := d.View()
		state := "VOID"
		if flakers == nil {
			state = unvoided
		}
		if v.State != state || !slices.Equal(v.VoidFlakers, flakers) {
			t.Errorf("deal %s is %s with flakers %v, want %s with the refused parties %v", d.ID, v.State, v.VoidFlakers, state, flakers)
		}
	}
	return statuses[200] > 0 && statuses[409] > 0
}

// One large deal has 400 parties, and 20 small deals have 4 parties each. All parties commit or
// reveal around the deadline, with two deal-apis and two workers. A party is a flaker exactly
// if its commit or reveal was refused. Each COMPUTED or VOID deal has exactly one certificate.
func TestRaceToTheDeadline(t *testing.T) {
	t.Parallel()
	const large, small, ofSmall = 400, 20, 4
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.DeadlineWorker: 2}
	})
	clients := []*e2e.Client{e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.URL("deal-api-2"))}
	c := clients[0]
	key, round := c.Key(), stack.Chain().RoundAt(time.Now().Unix())
	w := e2e.OpenDB(t, stack)
	// The trigger delays each transaction after the insert has read the clock, as a slow disk does. A
	// commit or reveal just before the deadline is accepted, although its transaction ends after the
	// deadline.
	w.Exec(0, `CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END'`)
	for _, table := range []string{"commitments", "reveals"} {
		w.Exec(0, "CREATE TRIGGER linger AFTER INSERT ON "+table+" FOR EACH STATEMENT EXECUTE FUNCTION linger()")
	}
	nonce, items := e2e.Seal(t, e2e.Body{"nonce": "c0ffee"}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}})

	// Every fifth party acts long before the deadline, so that some are in time even on a slow machine.
	// Most others act so close to the deadline that their SQL inserts still run when the deal ends.
	field := func(early time.Duration, commitDeadline, revealDeadline int64) (racers []*racer) {
		enter := func(d *e2e.CreatedDeal, s e2e.Sealed) {
			for p := range d.Tokens {
				spread := 30 * time.Millisecond
				if p%5 == 1 {
					spread = 500 * time.Millisecond
				}
				before := rand.N(2*spread) - spread
				if p%5 == 0 {
					before = early
				}
				racers = append(racers, &racer{d: d, party: p, sealed: s, through: clients[p%2], before: before})
			}
		}
		enter(c.CreateWith(key, e2e.Timed(e2e.RandomBody(large, round, 0, 0), commitDeadline, revealDeadline)), nonce)
		for range small {
			b := e2e.Timed(e2e.SplitBody(0, 0), commitDeadline, revealDeadline)
			b["party_labels"] = []string{"a", "b", "c", "d"}[:ofSmall]
			enter(c.CreateWith(key, b), items)
		}
		return racers
	}

	// Each stage needs both accepted and refused parties. Otherwise the stage runs again with new deals
	// and later deadlines.
	t.Run("commit", func(t *testing.T) {
		for lead := 4 * time.Second; ; lead *= 2 {
			deadline := e2e.After(lead)
			racers := field(lead/2, deadline, deadline+600)
			if time.Until(time.Unix(deadline, 0)) < lead/2 {
				continue
			}
			storm(t, racers, "commit", deadline)
			if judge(t, racers, "REVEALING") {
				break
			}
		}
	})
	t.Run("reveal", func(t *testing.T) {
		for lead := 4 * time.Second; ; lead *= 2 {
			deadline := e2e.After(lead)
			racers := field(lead/2, deadline-1, deadline)
			storm(t, racers, "commit", 0)
			if slices.ContainsFunc(racers, func(r *racer) bool { return r.status != 200 }) {
				continue
			}
			storm(t, racers, "reveal", deadline)
			if judge(t, racers, "COMPUTED") {
				break
			}
		}
	})
	e2e.Invariants(t, stack)
}
