package e2e

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
	oldURI, oldKey := keyFile(t)
	newURI, newKey := keyFile(t)
	with := func(uri string, keys ...body) []string {
		return []string{"FAIRPACT_SIGNING_KEY=" + uri, "FAIRPACT_KEY_SET_FILE=" + file(t, body{"keys": keys})}
	}
	current := body{"pubkey": oldKey, "state": "current"}
	before := with(oldURI, current)
	published := with(oldURI, current, body{"pubkey": newKey, "state": "next"})
	promoted := with(newURI, body{"pubkey": newKey, "state": "current"}, body{"pubkey": oldKey, "state": "retired"})
	stack := own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
		o.Env[""] = append(o.Env[""], before...)
	})
	calm, changed := []string{localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker}, []string{secondAPI, secondLog, secondWorker}
	first, second := newClient(t, stack.URL(localstack.DealAPI)), newClient(t, stack.URL(secondAPI))
	certified := func(c *client) []byte {
		d := c.create(splitBody(time.Hour, 2*time.Hour))
		d.play(annsValues, bobsValues)
		return d.certified(patience)
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
		eventually(t, name+" says why it is not ready", patience, func() bool {
			status, text := readiness(t, stack, name)
			return status == http.StatusServiceUnavailable && strings.Contains(text, "signs nothing") && strings.Contains(text, oldKey) && strings.Contains(text, newKey) && strings.Contains(text, "fairpactctl keys add-next")
		})
		// One that was stopped may count for a while yet.
		eventually(t, name+" counts 3 that disagree", patience, func() bool {
			return sum(scrape(t, stack, name)["fairpact_replica_disagreements"]) == 3
		})
	}
	for _, url := range []string{second.base, stack.LogReadURL(secondLog), stack.LogAppendURL(secondLog)} {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			t.Errorf("%s answers %s", url, resp.Status)
		}
	}
	certified(first)
	// It does not give in when it has waited for longer than a dead process counts.
	for _, name := range changed {
		eventually(t, name+" says that the disagreement lasts", patience, func() bool {
			text, err := os.ReadFile(stack.Log(name))
			return err == nil && strings.Contains(string(text), `"level":"ERROR","msg":"the replicas disagree"`)
		})
	}
	certified(first)
	for _, name := range calm {
		if status, text := readiness(t, stack, name); status != http.StatusOK {
			t.Errorf("%s was disturbed: %d %s", name, status, text)
		}
		if n := sum(scrape(t, stack, name)["fairpact_replica_disagreements"]); n != 0 {
			t.Errorf("%s counts %v that disagree, want none", name, n)
		}
	}
	lists := func(want string) {
		t.Helper()
		eventually(t, "fairpactctl keys check says: "+want, patience, func() bool {
			out, err := stack.Fairpactctl(t.Context(), "keys", "check", "--base-url", stack.BaseURL(), "--times", "1")
			if !strings.Contains(out, want) {
				t.Logf("not yet: %v\n%s", err, out)
			}
			return strings.Contains(out, want)
		})
	}
	lists("3 run (1 deadline-worker, 1 deal-api, 1 log-server) and accept each other's keys; 3 sign with " + oldKey)
	invariants(t, stack) // under the key set that is published: nothing is signed with another key
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
	if !first.verify(id).Valid || !second.verify(id).Valid {
		t.Error("the replicas do not agree on a certificate of the new key")
	}
	invariants(t, stack)
}
