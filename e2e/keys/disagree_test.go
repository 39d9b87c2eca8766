package keys

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// readiness is what a process's /readyz answers; 0 while nothing listens.
func readiness(t testing.TB, stack *localstack.Stack, name string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(stack.AdminURL(name) + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// A rotation is rolled out in the wrong order: one process of each binary is to
// sign with a key that the others were never given. It does not serve, signs
// nothing, and says what was left out; the others go on as if it were not there.
// With the steps in their order all come up.
func TestRotationInTheWrongOrder(t *testing.T) {
	t.Parallel()
	oldURI, oldKey := e2e.KeyFile(t)
	newURI, newKey := e2e.KeyFile(t)
	with := func(uri string, keys ...e2e.Body) []string {
		return []string{"FAIRPACT_SIGNING_KEY=" + uri, "FAIRPACT_KEY_SET_FILE=" + e2e.File(t, e2e.Body{"keys": keys})}
	}
	current := e2e.Body{"pubkey": oldKey, "state": "current"}
	before := with(oldURI, current)
	published := with(oldURI, current, e2e.Body{"pubkey": newKey, "state": "next"})
	promoted := with(newURI, e2e.Body{"pubkey": newKey, "state": "current"}, e2e.Body{"pubkey": oldKey, "state": "retired"})
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[""] = append(o.Env[""], before...)
	})
	calm, changed := []string{localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker}, []string{e2e.SecondAPI, e2e.SecondLog, e2e.SecondWorker}
	first, second := e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))
	certified := func(c *e2e.Client) []byte {
		d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		return d.Certified(e2e.Patience)
	}

	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var starts sync.WaitGroup
	for _, name := range changed {
		if err := stack.Stop(name); err != nil {
			t.Fatal(err)
		}
		starts.Go(func() {
			if stack.Start(ctx, name, promoted...) == nil {
				t.Errorf("%s became ready", name)
			}
		})
	}
	for _, name := range changed {
		e2e.Eventually(t, name+" says why it is not ready", e2e.Patience, func() bool {
			status, text := readiness(t, stack, name)
			return status == http.StatusServiceUnavailable && strings.Contains(text, "signs nothing") && strings.Contains(text, oldKey) && strings.Contains(text, newKey) && strings.Contains(text, "fairpactctl keys add-next")
		})
		// One that was stopped may count for a while yet.
		e2e.Eventually(t, name+" counts 3 that disagree", e2e.Patience, func() bool {
			return e2e.Sum(e2e.Scrape(t, stack, name)["fairpact_replica_disagreements"]) == 3
		})
	}
	for _, url := range []string{second.Base, stack.LogReadURL(e2e.SecondLog), stack.LogAppendURL(e2e.SecondLog)} {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			t.Errorf("%s answers %s", url, resp.Status)
		}
	}
	certified(first)
	// It does not give in when it has waited for longer than a dead process counts.
	for _, name := range changed {
		e2e.Eventually(t, name+" says that the disagreement lasts", e2e.Patience, func() bool {
			text, err := os.ReadFile(stack.Log(name))
			return err == nil && strings.Contains(string(text), `"level":"ERROR","msg":"the replicas disagree"`)
		})
	}
	certified(first)
	for _, name := range calm {
		if status, text := readiness(t, stack, name); status != http.StatusOK {
			t.Errorf("%s was disturbed: %d %s", name, status, text)
		}
		if n := e2e.Sum(e2e.Scrape(t, stack, name)["fairpact_replica_disagreements"]); n != 0 {
			t.Errorf("%s counts %v that disagree, want none", name, n)
		}
	}
	lists := func(want string) {
		t.Helper()
		e2e.Eventually(t, "fairpactctl keys check says: "+want, e2e.Patience, func() bool {
			out, err := stack.Fairpactctl(t.Context(), "keys", "check", "--base-url", stack.BaseURL(), "--times", "1")
			if !strings.Contains(out, want) {
				t.Logf("not yet: %v\n%s", err, out)
			}
			return strings.Contains(out, want)
		})
	}
	lists("3 run (1 deadline-worker, 1 deal-api, 1 log-server) and accept each other's keys; 3 sign with " + oldKey)
	e2e.Invariants(t, stack) // under the key set that is published: nothing is signed with another key
	giveUp()
	starts.Wait()

	for _, name := range append(changed, calm...) {
		if err := stack.Restart(t.Context(), name, published...); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range changed {
		if err := stack.Restart(t.Context(), name, promoted...); err != nil {
			t.Fatal(err)
		}
	}
	lists("6 run (2 deadline-worker, 2 deal-api, 2 log-server) and accept each other's keys")
	lists("3 sign with " + newKey)
	certificate, err := canon.ParseObject(certified(second))
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := certificate["signature"].(string)
	id, _ := certificate["cert_id"].(string)
	delete(certificate, "signature")
	delete(certificate, "log_proof")
	key, err := signing.NewVerifyingKey(newKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := key.Verify(canon.Encode(certificate), signature); err != nil {
		t.Errorf("the new key signs: %v", err)
	}
	if !first.Verify(id).Valid || !second.Verify(id).Valid {
		t.Error("the replicas do not agree on a certificate of the new key")
	}
	e2e.Invariants(t, stack)
}
