package outage

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

const longest = 45 * time.Second // of a wait

func twoReplicas(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} }

// waitingCalls is how many calls wait at a deal-api.
func waitingCalls(t *testing.T, stack *localstack.Stack, name string) float64 {
	t.Helper()
	return e2e.Sum(e2e.Scrape(t, stack, name)["fairpact_waiting_calls"])
}

// A call that waits at one replica is answered by what happens at another, by what
// the worker does, and by a certificate, whatever Redis does meanwhile.
func TestWaitingAcrossReplicas(t *testing.T) {
	for name, unrest := range e2e.Unrests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := e2e.Own(t, twoReplicas)
			defer unrest(t, stack)()
			here, there := e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.URL(e2e.SecondAPI))
			d := here.Create(e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)))
			sealed := []e2e.Sealed{e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 1}})}
			for _, step := range []struct {
				what string
				take func()
				says string
			}{
				{"a commit", func() { d.Commit(0, sealed[0]) }, `"state":"COMMITTING"`},
				{"the last commit", func() { d.Commit(1, sealed[1]) }, `"state":"REVEALING"`},
				{"a reveal", func() { d.Reveal(0, sealed[0]) }, `"revealed":true`},
				{"the last reveal", func() { d.Reveal(1, sealed[1]) }, `"state":"COMPUTED"`},
			} {
				tag := there.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Header.Get("ETag")
				began := time.Now()
				got := answers(there, d.Path("?wait=45&since="+url.QueryEscape(tag)), d.Tokens[0])
				e2e.Eventually(t, "the call waits", e2e.Patience, func() bool { return waitingCalls(t, stack, e2e.SecondAPI) > 0 })
				step.take()
				if a := <-got; a.Status != 200 || !strings.Contains(string(a.Body), step.says) || time.Since(began) >= longest {
					t.Errorf("%s: after %s: %d %s", step.what, time.Since(began), a.Status, a.Body)
				}
			}
			d = here.Create(e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)))
			certificate := answers(there, d.Path("/certificate?wait=45"), d.Tokens[0])
			e2e.Eventually(t, "the call waits", e2e.Patience, func() bool { return waitingCalls(t, stack, e2e.SecondAPI) > 0 })
			d.Play(sealed[0].Input, sealed[1].Input)
			e2e.Independently(t, there, (<-certificate).Body, true)

			missed := here.Create(e2e.Timed(e2e.SplitBody(0, 0), e2e.After(2*time.Second), e2e.After(e2e.Patience)))
			began := time.Now()
			if a := <-answers(there, missed.Path("?wait=45&since=OPEN"), missed.Tokens[0]); !strings.Contains(string(a.Body), `"state":"VOID"`) || time.Since(began) >= longest {
				t.Errorf("a missed deadline: after %s: %d %s", time.Since(began), a.Status, a.Body)
			}
		})
	}
}

// answers makes a call on another goroutine.
func answers(c *e2e.Client, path, token string) <-chan e2e.Answer {
	got := make(chan e2e.Answer, 1)
	go func() {
		a, err := c.Try(c.T.Context(), "GET", path, token, nil)
		if err != nil {
			a.Body = []byte(err.Error())
		}
		got <- a
	}()
	return got
}

// A drain answers all calls that wait with the deal as it stands and sends them
// elsewhere; callers that hang up leave nothing that waits.
func TestDrainEndsWaits(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.Create(e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)))
	tool := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_deal","arguments":{"deal_id":%q,"invite_token":%q,"wait_seconds":45}}}`, d.ID, d.Tokens[0])

	gone, hangUp := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() { _, _ = c.Try(gone, "GET", d.Path("?wait=45"), d.Tokens[0], nil) })
	left.Go(func() { _, _ = c.Try(gone, "GET", d.Path("/certificate?wait=45"), d.Tokens[0], nil) })
	left.Go(func() { _, _ = c.Try(gone, "POST", "/mcp", "", tool) })
	e2e.Eventually(t, "three calls wait", e2e.Patience, func() bool { return waitingCalls(t, stack, localstack.DealAPI) == 3 })
	hangUp()
	left.Wait()
	e2e.Eventually(t, "none waits", e2e.Patience, func() bool { return waitingCalls(t, stack, localstack.DealAPI) == 0 })

	const calls = 20
	var all []<-chan e2e.Answer
	for range calls {
		all = append(all, answers(e2e.NewClient(t, stack.BaseURL()), d.Path("?wait=45&since=OPEN"), d.Tokens[0]))
	}
	called := make(chan e2e.Answer, 1)
	go func() {
		a, err := e2e.NewClient(t, stack.BaseURL()).Try(t.Context(), "POST", "/mcp", "", tool)
		if err != nil {
			a.Body = []byte(err.Error())
		}
		called <- a
	}()
	certificate := answers(e2e.NewClient(t, stack.BaseURL()), d.Path("/certificate?wait=45"), d.Tokens[0])
	e2e.Eventually(t, "all calls wait", e2e.Patience, func() bool { return waitingCalls(t, stack, localstack.DealAPI) == calls+2 })
	began := time.Now()
	stack.Signal(localstack.DealAPI, syscall.SIGTERM)
	for _, got := range append(all, called) {
		if a := <-got; a.Status != 200 || !strings.Contains(string(a.Body), `OPEN`) || !a.Last {
			t.Errorf("%d %.300s, it ends the connection: %v", a.Status, a.Body, a.Last)
		}
	}
	if a := <-certificate; a.Code() != "CERT_NOT_READY" {
		t.Errorf("the certificate: %d %s", a.Status, a.Body)
	}
	ends(t, stack, localstack.DealAPI, began)
}
