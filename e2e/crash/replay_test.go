package crash

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// deal-api is killed between an effect and its answer: the retry, at another
// replica at once and at the killed one after its restart, replays the one
// outcome.
func TestReplayAfterAKill(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
	first, second := e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.URL(e2e.SecondAPI))
	w, redis := e2e.Database(t, stack), e2e.Cache(t, stack)
	// killed sends a request to a deal-api that dies at the point, and gives the
	// answer to the retry. The dead one's lock stays in Redis where locks is true.
	killed := func(point string, locks bool, path, token string, sent any) e2e.Answer {
		t.Helper()
		if err := stack.Restart(t.Context(), localstack.DealAPI, "FAIRPACT_CRASH_AT="+point); err != nil {
			t.Fatal(err)
		}
		o := first.Once(path, token, sent)
		if a, err := first.Try(t.Context(), "POST", path, token, sent, "Idempotency-Key", o.Key); err == nil {
			t.Fatalf("POST %s was answered %d %s and should have died at %s", path, a.Status, a.Body, point)
		}
		<-stack.Ended(localstack.DealAPI)
		if !locks {
			if err := redis.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		retry := o
		retry.C = second
		status := 200
		if path == "/v1/keys" || path == "/v1/deals" {
			status = 201
		}
		a := retry.Want(status)
		if err := stack.Start(t.Context(), localstack.DealAPI); err != nil {
			t.Fatal(err)
		}
		o.Replays(a)
		return a
	}

	const effect = "idempotency.effect"
	var made struct {
		APIKey string `json:"api_key"`
	}
	killed(effect, false, "/v1/keys", "", nil).Into(t, &made)
	if n := w.APIKeys(); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience))
	d := second.Created(made.APIKey, killed(effect, true, "/v1/deals", made.APIKey, b))
	w.Exactly(1, 0)

	cancelled := second.CreateWith(made.APIKey, b)
	if a := killed(effect, false, cancelled.Path("/cancel"), made.APIKey, nil); !strings.Contains(string(a.Body), `"CANCELLED"`) {
		t.Errorf("cancel: %s", a.Body)
	}

	s := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 2}})
	for _, cut := range []struct {
		point, action string
		party         int
		locks         bool
		holds         string
	}{
		{effect, "commit", 0, false, `"state":"COMMITTING"`},
		{"escrow.committed", "commit", 1, true, `"state":"REVEALING"`},
		{"escrow.revealed", "reveal", 1, false, `"state":"REVEALING"`},
		{effect, "reveal", 0, true, `"state":"COMPUTED"`},
	} {
		a := killed(cut.point, cut.locks, d.Path("/"+cut.action), d.Tokens[cut.party], s.Act(cut.action))
		if !strings.Contains(string(a.Body), cut.holds) {
			t.Errorf("%s of party %d replays %s, want %s", cut.action, cut.party, a.Body, cut.holds)
		}
	}
	w.Exactly(2, 1)
	e2e.Invariants(t, stack)
	if r := second.Verify(*d.View().CertificateID); !r.Valid {
		t.Errorf("verification: %+v", r)
	}
}
