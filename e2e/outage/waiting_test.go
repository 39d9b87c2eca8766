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
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

const longest = 45 * time.Second // the longest wait that a call may ask for

func waitingCalls(t *testing.T, stack *localstack.Stack, name string) float64 {
	t.Helper()
	return e2e.Sum(e2e.Scrape(t, stack, name)["fairpact_waiting_calls"])
}

// waitingAcrossReplicas requires that a waiting call at one replica is answered in three cases:
// after a change through another replica, after the worker makes the deal VOID, and when the
// certificate is issued.
func waitingAcrossReplicas(t *testing.T, stack *localstack.Stack) {
	here, there := e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.URL(e2e.SecondAPI))
	d := here.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
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
		e2e.Eventually(t, "the call waits", e2e.DefaultTimeout, func() bool { return waitingCalls(t, stack, e2e.SecondAPI) > 0 })
		step.take()
		if a := <-got; a.Status != 200 || !strings.Contains(string(a.Body), step.says) || time.Since(began) >= longest {
			t.Errorf("%s: answered after %s: %d %s, want the change", step.what, time.Since(began), a.Status, a.Body)
		}
	}
	d = here.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	certificate := answers(there, d.Path("/certificate?wait=45"), d.Tokens[0])
	e2e.Eventually(t, "the call waits", e2e.DefaultTimeout, func() bool { return waitingCalls(t, stack, e2e.SecondAPI) > 0 })
	d.Play(sealed[0].Input, sealed[1].Input)
	e2e.RequireIndependentVerdict(t, there, (<-certificate).Body, true)

	missed := here.Create(e2e.Timed(e2e.SplitBody(0, 0), e2e.After(2*time.Second), e2e.After(e2e.DefaultTimeout)))
	began := time.Now()
	if a := <-answers(there, missed.Path("?wait=45&since=OPEN"), missed.Tokens[0]); !strings.Contains(string(a.Body), `"state":"VOID"`) || time.Since(began) >= longest {
		t.Errorf("a missed deadline: answered after %s: %d %s, want VOID", time.Since(began), a.Status, a.Body)
	}
}

func answers(c *e2e.Client, path, token string) <-chan e2e.Answer {
	return answersTo(c, "GET", path, token, nil)
}

func answersTo(c *e2e.Client, method, path, token string, body any) <-chan e2e.Answer {
	got := make(chan e2e.Answer, 1)
	go func() {
		a, err := c.Try(c.T.Context(), method, path, token, body)
		if err != nil {
			a.Body = []byte(err.Error())
		}
		got <- a
	}()
	return got
}

// drainEndsWaits requires that a drain answers all waiting calls with the current state of the
// deal, and closes the connections. If a caller hangs up, its call must no longer count as waiting.
func drainEndsWaits(t *testing.T, stack *localstack.Stack) {
	t.Helper()
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	tool := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_deal","arguments":{"deal_id":%q,"invite_token":%q,"wait_seconds":45}}}`, d.ID, d.Tokens[0])

	gone, hangUp := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() { _, _ = c.Try(gone, "GET", d.Path("?wait=45"), d.Tokens[0], nil) })
	left.Go(func() { _, _ = c.Try(gone, "GET", d.Path("/certificate?wait=45"), d.Tokens[0], nil) })
	left.Go(func() { _, _ = c.Try(gone, "POST", "/mcp", "", tool) })
	e2e.Eventually(t, "three calls wait", e2e.DefaultTimeout, func() bool { return waitingCalls(t, stack, localstack.DealAPI) == 3 })
	hangUp()
	left.Wait()
	e2e.Eventually(t, "no call waits", e2e.DefaultTimeout, func() bool { return waitingCalls(t, stack, localstack.DealAPI) == 0 })

	const calls = 20
	var all []<-chan e2e.Answer
	for range calls {
		all = append(all, answers(e2e.NewClient(t, stack.BaseURL()), d.Path("?wait=45&since=OPEN"), d.Tokens[0]))
	}
	all = append(all, answersTo(e2e.NewClient(t, stack.BaseURL()), "POST", "/mcp", "", tool))
	certificate := answers(e2e.NewClient(t, stack.BaseURL()), d.Path("/certificate?wait=45"), d.Tokens[0])
	e2e.Eventually(t, "all calls wait", e2e.DefaultTimeout, func() bool { return waitingCalls(t, stack, localstack.DealAPI) == calls+2 })
	began := time.Now()
	stack.Signal(localstack.DealAPI, syscall.SIGTERM)
	for _, got := range all {
		if a := <-got; a.Status != 200 || !strings.Contains(string(a.Body), `OPEN`) || !a.Last {
			t.Errorf("a waiting call: %d %.300s, closes the connection: %v; want 200 and true", a.Status, a.Body, a.Last)
		}
	}
	if a := <-certificate; a.Code() != "CERT_NOT_READY" {
		t.Errorf("the wait for the certificate: %d %s, want CERT_NOT_READY", a.Status, a.Body)
	}
	ends(t, stack, localstack.DealAPI, began)
}
