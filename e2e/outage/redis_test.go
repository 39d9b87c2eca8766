package outage

import (
	"bytes"
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestRedisIsDownFromTheStart(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.RedisURL = "redis://:secret@127.0.0.1:1/0" })
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	missed := e2e.Played(t, c, e2e.MissedCommit)
	past := stack.Chain().RoundAt(time.Now().Unix()) - 10
	for _, play := range []e2e.Scenario{e2e.LastReveal, e2e.Draw(past), e2e.Rejection} {
		x := e2e.Played(t, c, play)
		lastCall(t, c, x)
		x.Recomputed(t, c, x.Deal.Certified(e2e.DefaultTimeout))
	}
	e2e.Eventually(t, "the worker voids the deal whose deadline passed", e2e.DefaultTimeout, func() bool { return w.Phase(missed.Deal) == "VOID" })
	w.Converged()
	e2e.Invariants(t, stack)
}

const crowd = 24

// twins sends identical requests at the same time, spread over the replicas. All requests have the
// same new Idempotency-Key. SPEC 7.4: these requests and a later repeat must get the same answer.
func twins(t *testing.T, doors []*e2e.Client, status int, path, token string, sent any) e2e.Answer {
	t.Helper()
	key := rand.Text()
	answers := make([]e2e.Answer, crowd)
	var group sync.WaitGroup
	for i := range crowd {
		group.Go(func() {
			var err error
			if answers[i], err = doors[i%len(doors)].Try(t.Context(), "POST", path, token, sent, "Idempotency-Key", key); err != nil {
				t.Errorf("POST %s: %v, want an answer", path, err)
			}
		})
	}
	group.Wait()
	answers = append(answers, doors[0].Do("POST", path, token, sent, "Idempotency-Key", key))
	for _, a := range answers {
		if a.Status != status || !bytes.Equal(a.Body, answers[0].Body) {
			t.Errorf("POST %s: one answer is %d %.300s\nanother is %d %.300s, want %d", path, a.Status, a.Body, answers[0].Status, answers[0].Body, status)
		}
	}
	return answers[0]
}

// redisFaults maps a state of Redis to a function that causes this state. Some functions repeat
// their action until the test calls `stop`. For "down", `stop` does not start Redis again.
var redisFaults = map[string]func(t *testing.T, stack *localstack.Stack) (stop func()){
	"up": func(*testing.T, *localstack.Stack) func() { return func() {} },
	"down": func(t *testing.T, stack *localstack.Stack) func() {
		if err := stack.Redis().Stop(); err != nil {
			t.Fatal(err)
		}
		return func() {}
	},
	"emptied": func(t *testing.T, stack *localstack.Stack) func() {
		client := e2e.Cache(t, stack)
		return again(t, 2*time.Millisecond, func(ctx context.Context) error { return client.FlushAll(ctx).Err() })
	},
	"restarted": func(t *testing.T, stack *localstack.Stack) func() {
		return again(t, 100*time.Millisecond, stack.Redis().Restart)
	},
	// Redis hangs for 600 ms, which is longer than deal-api waits for Redis to answer. Redis then
	// runs for 1.2 s. deal-api stops using Redis for only 1 s after a failure, so it uses Redis again
	// before the next hang.
	"hung": func(t *testing.T, stack *localstack.Stack) func() {
		pid := stack.Redis().PID()
		stop := again(t, 1200*time.Millisecond, func(ctx context.Context) error {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return err
			}
			e2e.Pause(ctx, 600*time.Millisecond)
			return syscall.Kill(pid, syscall.SIGCONT)
		})
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		return stop
	},
}

func again(t *testing.T, every time.Duration, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			if err := do(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("Redis: %v", err)
				return
			}
			e2e.Pause(ctx, every)
		}
	})
	once := sync.OnceFunc(func() { cancel(); loop.Wait() })
	t.Cleanup(once)
	return once
}

// Redis is up, down, emptied, restarted or hung. In each case, identical requests have one effect,
// and waiting calls are answered. When Redis is back, the processes use it again without a restart.
func TestRedisUnrest(t *testing.T) {
	for name, unrest := range redisFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := e2e.Own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
			stop := unrest(t, stack)
			twinsActOnce(t, stack)
			waitingAcrossReplicas(t, stack)
			stop()
			if name == "down" {
				e2e.Must(t, stack.Redis().Restart(t.Context()))
			}
			redis, c := e2e.Cache(t, stack), e2e.NewClient(t, stack.BaseURL())
			e2e.Must(t, redis.FlushAll(t.Context()).Err())
			key := c.Key()
			e2e.Must(t, redis.ConfigResetStat(t.Context()).Err())
			e2e.Eventually(t, "a lock in Redis", e2e.DefaultTimeout, func() bool {
				c.NewIdempotentPost("/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour)).Want(201)
				used, err := redis.Info(t.Context(), "commandstats").Result()
				return err == nil && strings.Contains(used, "cmdstat_set:")
			})
		})
	}
}

func twinsActOnce(t *testing.T, stack *localstack.Stack) {
	doors := []*e2e.Client{e2e.NewClient(t, stack.BaseURL()), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}
	w, c := e2e.OpenDB(t, stack), doors[0]
	var made struct {
		APIKey string `json:"api_key"`
	}
	twins(t, doors, 201, "/v1/keys", "", nil).Into(t, &made)
	if n := w.APIKeys(); n != 1 {
		t.Errorf("%d API keys were created, want 1", n)
	}
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.DefaultTimeout), e2e.After(6*e2e.DefaultTimeout))
	cancelled := c.Created(made.APIKey, twins(t, doors, 201, "/v1/deals", made.APIKey, b))
	d := c.Created(made.APIKey, twins(t, doors, 201, "/v1/deals", made.APIKey, b))
	w.Exactly(2, 0)
	twins(t, doors, 200, cancelled.Path("/cancel"), made.APIKey, nil)
	if v := cancelled.View(); v.State != "CANCELLED" {
		t.Errorf("after the cancel the deal is %s, want CANCELLED", v.State)
	}

	s := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 2}})
	var last struct {
		State     string
		Committed bool
		Revealed  bool
		Result    e2e.Body
	}
	for _, action := range []string{"commit", "reveal"} {
		for p, token := range d.Tokens {
			twins(t, doors, 200, d.Path("/"+action), token, s.Act(action)).Into(t, &last)
			acted := last.Committed && action == "commit" || last.Revealed && action == "reveal"
			if want := map[string][]string{"commit": {"COMMITTING", "REVEALING"}, "reveal": {"REVEALING", "COMPUTED"}}[action][p]; !acted || last.State != want {
				t.Errorf("%s of party %d: %+v, want %s", action, p, last, want)
			}
		}
	}
	if last.Result == nil {
		t.Errorf("the last reveal has no result: %+v", last)
	}
	w.Exactly(2, 1)
	w.Converged()
	e2e.Invariants(t, stack)
	// The 7 records are of two deal creations, a cancel, two commits and two reveals. The service
	// deletes the record of an API key's creation when that key is first used.
	if n := w.Records(); n != 7 {
		t.Errorf("%d idempotency records, want 7", n)
	}
}
