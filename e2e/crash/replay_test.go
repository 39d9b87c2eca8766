package crash

import (
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// replays kills deal-api after a POST has taken effect and before the response. Retries at another
// replica and at the restarted replica must get the same response, without a second effect.
func (y *crashTest) replays() {
	y.t.Helper()
	rows := func() string { return fmt.Sprint(y.w.APIKeys(), y.w.Number("SELECT count(*) FROM deals")) }
	// killed sends a POST to a deal-api that dies after the effect of the POST. It returns the
	// response to the retry. If locks is true, the dead process's lock stays in Redis.
	killed := func(locks bool, path, token string, sent any) e2e.Answer {
		y.t.Helper()
		y.start(localstack.DealAPI, "FAIRPACT_CRASH_AT=idempotency.effect")
		o := y.target.NewIdempotentPost(path, token, sent)
		if a, err := y.target.Try(y.t.Context(), "POST", path, token, sent, "Idempotency-Key", o.Key); err == nil {
			y.t.Fatalf("POST %s was answered %d %s before deal-api died", path, a.Status, a.Body)
		}
		<-y.stack.Ended(localstack.DealAPI)
		if !locks {
			e2e.Must(y.t, y.redis.FlushAll(y.t.Context()).Err())
		}
		before, retry, status := rows(), o, 201
		if strings.HasSuffix(path, "/cancel") {
			status = 200
		}
		retry.C = y.healthy
		a := retry.Want(status)
		e2e.Must(y.t, y.stack.Start(y.t.Context(), localstack.DealAPI))
		o.Replays(a)
		if after := rows(); after != before {
			y.t.Errorf("POST %s: the counts of keys and deals were %s after the kill and are %s after the retry, want no change", path, before, after)
		}
		return a
	}

	var made struct {
		APIKey string `json:"api_key"`
	}
	killed(false, "/v1/keys", "", nil).Into(y.t, &made)
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.DefaultTimeout), e2e.After(6*e2e.DefaultTimeout))
	d := y.healthy.Created(made.APIKey, killed(true, "/v1/deals", made.APIKey, b))
	if a := killed(false, d.Path("/cancel"), made.APIKey, nil); !strings.Contains(string(a.Body), `"CANCELLED"`) {
		y.t.Errorf("retry of the cancel: %s, want state CANCELLED", a.Body)
	}
}
