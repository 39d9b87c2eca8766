package crash

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// deal-api is killed between an effect and its answer: of a new key, a creation and a
// cancel. The retry at another replica, and later at the restarted one, gets the same
// answer, and the effect happens once. TestCrashDealAPI does the same with commits and
// reveals.
func TestReplayAfterAKill(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
	first, second := e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.URL(e2e.SecondAPI))
	w, redis := e2e.Database(t, stack), e2e.Cache(t, stack)
	// killed sends a request to a deal-api that dies after the effect, and returns the
	// answer to the retry. If locks is true, the dead process's lock stays in Redis.
	killed := func(locks bool, path, token string, sent any) e2e.Answer {
		t.Helper()
		e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, "FAIRPACT_CRASH_AT=idempotency.effect"))
		o := first.Once(path, token, sent)
		if a, err := first.Try(t.Context(), "POST", path, token, sent, "Idempotency-Key", o.Key); err == nil {
			t.Fatalf("POST %s was answered %d %s before deal-api died", path, a.Status, a.Body)
		}
		<-stack.Ended(localstack.DealAPI)
		if !locks {
			e2e.Must(t, redis.FlushAll(t.Context()).Err())
		}
		retry := o
		retry.C = second
		status := 200
		if path == "/v1/keys" || path == "/v1/deals" {
			status = 201
		}
		a := retry.Want(status)
		e2e.Must(t, stack.Start(t.Context(), localstack.DealAPI))
		o.Replays(a)
		return a
	}

	var made struct {
		APIKey string `json:"api_key"`
	}
	killed(false, "/v1/keys", "", nil).Into(t, &made)
	if n := w.APIKeys(); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience))
	d := second.Created(made.APIKey, killed(true, "/v1/deals", made.APIKey, b))
	if a := killed(false, d.Path("/cancel"), made.APIKey, nil); !strings.Contains(string(a.Body), `"CANCELLED"`) {
		t.Errorf("cancel: %s", a.Body)
	}
	w.Exactly(1, 0)
}
