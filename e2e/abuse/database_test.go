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

// readsOfTheLog asks log-server for what has a statement of its own.
func readsOfTheLog(ctx context.Context, from *crowd) {
	paths := []string{"/v1/log/checkpoint?tree_size=1", "/v1/log/tlog-proof?leaf_index=0", "/v1/log/tlog-proof?leaf_index=0&first=1", "/tile/entries/000.p/1"}
	client := clientFrom(logURL(from.stack), from.addresses[0])
	defer client.Http.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 2000 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = client.Try(ctx, "GET", paths[i%len(paths)], "", nil)
			}
		})
	}
	all.Wait()
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

// TestEnds measures the last reveals of small deals, whose answers have the result and which issue the certificate,
// beside attacks on the ends of deals. None may be refused.
func TestEnds(t *testing.T) {
	withoutAutogroup(t)
	stack := attacked(t)
	for _, row := range []struct{ deals, items int }{{170, 112}, {40, 256}} { // inputs that are read with others, and the largest result
		t.Run(fmt.Sprintf("%d ends with %d items", row.deals, row.items), func(t *testing.T) {
			deals, last := largeSplits(t, e2e.NewClient(t, stack.BaseURL()), row.deals, row.items)
			revealed := make([]bool, row.deals)
			endsBeside(t, stack, time.Minute, func(ctx context.Context, from *crowd) {
				var all sync.WaitGroup
				for i, d := range deals {
					all.Go(func() {
						a, err := from.clients[0].Try(ctx, "POST", d.Path("/reveal"), d.Tokens[len(d.Tokens)-1], last)
						revealed[i] = err == nil && a.Status == 200
					})
				}
				all.Wait()
			})
			for i, d := range deals {
				if revealed[i] {
					e2e.Eventually(t, fmt.Sprintf("deal %d ends", i), e2e.DefaultTimeout, func() bool { return d.View().State == "COMPUTED" })
				}
			}
			if !slices.Contains(revealed, true) {
				t.Error("no deal has ended")
			}
		})
	}
	t.Run("reads of the log, 2,000 connections", func(t *testing.T) {
		small := e2e.NewClient(t, stack.BaseURL())
		endSmall(t, small)
		endsBeside(t, stack, 4*time.Second, readsOfTheLog)
	})
}

// endSmall plays a deal, and returns how long the last reveal takes.
func endSmall(t *testing.T, c *e2e.Client) time.Duration {
	input := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1, "boat": 2}})
	d := c.Create(e2e.SplitBody(hour, 2*hour))
	for p := range d.Tokens {
		c.Want(200, "POST", d.Path("/commit"), d.Tokens[p], input.Act("commit"))
	}
	c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], input.Act("reveal"))
	began := time.Now()
	if a := c.Want(200, "POST", d.Path("/reveal"), d.Tokens[1], input.Act("reveal")); e2e.Decoded(t, a.Body)["result"] == nil {
		t.Errorf("the last reveal has no result: %s", a.Body)
	}
	took := time.Since(began)
	c.Want(200, "GET", d.Path("/certificate?wait=20"), d.Tokens[1], nil)
	return took
}

// endsBeside plays small deals until an attack returns, whose context ends after `most`.
func endsBeside(t *testing.T, stack *localstack.Stack, most time.Duration, attack func(context.Context, *crowd)) {
	e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, limits...))
	confine(t, stack)
	small := from(t, stack, victimAt)
	apart(t)
	quiet := endSmall(t, small)
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	attackers, ended := newCrowd(t, stack, 1), make(chan struct{})
	go func() { attack(ctx, attackers); close(ended) }()
	var took []time.Duration
	for more := true; more; {
		took = append(took, endSmall(t, small))
		select {
		case <-ended:
			more = false
		case <-stack.Ended(localstack.DealAPI):
			t.Fatal("deal-api was killed")
		case <-time.After(50 * time.Millisecond):
		}
	}
	slices.Sort(took)
	held := peak(t, stack)
	t.Logf("ROW | %s | %d MB | last reveal: %v -> median %v, most %v of %d", t.Name(), held>>20, quiet, took[len(took)/2], took[len(took)-1], len(took))
	if held > mostResident {
		t.Errorf("deal-api used %d MB, want at most %d", held>>20, mostResident>>20)
	}
}
