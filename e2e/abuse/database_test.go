//go:build long

package abuse

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// queued are attacks on the queues of statements.
var queued = []attack{
	{"one party commits again, 2,000 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(hour, 2*hour))
		act := e2e.Seal(t, e2e.Body{"nonce": "aa"}).Act("commit")
		return flood(2000, func(int) (string, string, string, any) { return "POST", d.Path("/commit"), d.Tokens[0], act })
	}},
	{"cancels of a cancelled deal, 1,500 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		c := e2e.NewClient(t, stack.BaseURL())
		d := c.Create(e2e.SplitBody(hour, 2*hour))
		c.Want(200, "POST", d.Path("/cancel"), d.Key, nil)
		return flood(1500, func(int) (string, string, string, any) { return "POST", d.Path("/cancel"), d.Key, nil })
	}},
	{"parties of a large deal commit again, 512 connections", func(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
		d := committedLarge(t, stack, 10)
		act := e2e.Seal(t, e2e.Body{"nonce": "bb"}).Act("commit")
		return flood(512, func(i int) (string, string, string, any) { return "POST", d.Path("/commit"), d.Tokens[i], act })
	}},
}

// largeSplits returns deals between 16 parties whose results are as large as the items make them. The last party
// has not revealed yet; `reveal` is what it sends.
func largeSplits(t *testing.T, c *e2e.Client, deals, items int) (all []*e2e.CreatedDeal, reveal e2e.Body) {
	const parties = 16
	names, labels, inputs := make([]string, items), make([]string, parties), make([]e2e.Sealed, parties)
	for i := range names {
		names[i] = fmt.Sprintf("%03d", i)
	}
	for p := range inputs {
		labels[p] = fmt.Sprint("p", p)
		values := e2e.Body{}
		for i, name := range names {
			values[name] = 1<<53 - 1 - 1_000_003*(i+1)*(p+7) - 7919*p*p
		}
		inputs[p] = e2e.Seal(t, e2e.Body{"valuations": values})
	}
	for range deals {
		body := e2e.SplitBody(hour, 2*hour)
		body["party_labels"], body["algorithm_params"] = labels, e2e.Body{"items": names}
		all = append(all, c.Create(body))
	}
	for _, step := range []struct {
		action string
		acts   int
	}{{"commit", parties}, {"reveal", parties - 1}} {
		many(t, c, deals*step.acts, func(i int) (string, string, string, any) {
			d, p := all[i/step.acts], i%step.acts
			return "POST", d.Path("/" + step.action), d.Tokens[p], inputs[p].Act(step.action)
		})
	}
	return all, inputs[parties-1].Act("reveal")
}

// TestLargeEnds ends deals with large results at once, in two sizes: with inputs that one statement reads with others,
// and with the largest result. Meanwhile small deals of another address end. None of their calls may be refused.
func TestLargeEnds(t *testing.T) {
	withoutAutogroup(t)
	stack := attacked(t)
	for _, row := range []struct{ deals, items int }{{170, 112}, {40, 256}} {
		t.Run(fmt.Sprintf("%d deals of %d items", row.deals, row.items), func(t *testing.T) {
			deals, last := largeSplits(t, e2e.NewClient(t, stack.BaseURL()), row.deals, row.items)
			e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, limits...))
			confine(t, stack)
			small := from(t, stack, victimAt)
			input := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1, "boat": 2}})
			end := func() time.Duration {
				d := small.Create(e2e.SplitBody(hour, 2*hour))
				for p := range d.Tokens {
					small.Want(200, "POST", d.Path("/commit"), d.Tokens[p], input.Act("commit"))
				}
				small.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], input.Act("reveal"))
				began := time.Now()
				if a := small.Want(200, "POST", d.Path("/reveal"), d.Tokens[1], input.Act("reveal")); e2e.Decoded(t, a.Body)["result"] == nil {
					t.Errorf("the last reveal has no result: %s", a.Body)
				}
				return time.Since(began)
			}
			apart(t)
			quiet := end()
			attackers := newCrowd(t, stack, 1)
			answered := make(chan struct{})
			var all sync.WaitGroup
			for _, d := range deals {
				all.Go(func() {
					_, _ = attackers.clients[0].Try(t.Context(), "POST", d.Path("/reveal"), d.Tokens[len(d.Tokens)-1], last)
				})
			}
			go func() { all.Wait(); close(answered) }()
			var took []time.Duration
			for ended := false; !ended; {
				took = append(took, end())
				select {
				case <-answered:
					ended = true
				case <-stack.Ended(localstack.DealAPI):
					t.Fatal("deal-api was killed")
				case <-time.After(50 * time.Millisecond):
				}
			}
			slices.Sort(took)
			held := peak(t, stack)
			t.Logf("ROW | ends of %d deals with %d items | %d MB | last reveal of a small deal: %v -> median %v, most %v of %d", row.deals, row.items, held>>20, quiet, took[len(took)/2], took[len(took)-1], len(took))
			if held > mostResident {
				t.Errorf("deal-api used %d MB, want at most %d", held>>20, mostResident>>20)
			}
		})
	}
}
