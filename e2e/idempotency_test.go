package e2e

import (
	"bytes"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/localstack"
)

const crowd = 24 // identical requests at once

// twins sends one request many times at once, under one new Idempotency-Key and
// through all replicas in turn. SPEC 7.4: all get one answer, which is replayed
// to whoever sends it again.
func twins(t *testing.T, doors []*client, status int, path, token string, sent any) answer {
	t.Helper()
	key := rand.Text()
	answers := make([]answer, crowd)
	var group sync.WaitGroup
	for i := range crowd {
		group.Go(func() {
			var err error
			if answers[i], err = doors[i%len(doors)].try(t.Context(), "POST", path, token, sent, "Idempotency-Key", key); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	answers = append(answers, doors[0].do("POST", path, token, sent, "Idempotency-Key", key))
	for _, a := range answers {
		if a.status != status || !bytes.Equal(a.body, answers[0].body) {
			t.Errorf("POST %s: one answered %d %.300s\nanother %d %.300s, want %d", path, a.status, a.body, answers[0].status, answers[0].body, status)
		}
	}
	return answers[0]
}

// However many identical requests meet, they have one effect and one answer,
// whatever Redis does meanwhile.
func TestTwins(t *testing.T) {
	for name, unrest := range unrests {
		t.Run("Redis "+name, func(t *testing.T) {
			t.Parallel()
			stack := own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
			doors := []*client{newClient(t, stack.BaseURL()), newClient(t, stack.URL(secondAPI))}
			w, c := database(t, stack), doors[0]
			defer unrest(t, stack)()

			var made struct {
				APIKey string `json:"api_key"`
			}
			twins(t, doors, 201, "/v1/keys", "", nil).into(t, &made)
			if n := w.number("SELECT count(*) FROM api_keys"); n != 1 {
				t.Errorf("%d keys, want 1", n)
			}
			b := timed(splitBody(0, 0), after(5*patience), after(6*patience))
			cancelled := c.created(made.APIKey, twins(t, doors, 201, "/v1/deals", made.APIKey, b))
			d := c.created(made.APIKey, twins(t, doors, 201, "/v1/deals", made.APIKey, b))
			w.exactly(2, 0)
			twins(t, doors, 200, cancelled.path("/cancel"), made.APIKey, nil)
			if v := cancelled.view(); v.State != "CANCELLED" {
				t.Errorf("after the cancel: %s", v.State)
			}

			s := seal(t, body{"valuations": body{"car": 2}})
			var last struct {
				State     string
				Committed bool
				Revealed  bool
				Result    body
			}
			for _, action := range []string{"commit", "reveal"} {
				for p, token := range d.Tokens {
					twins(t, doors, 200, d.path("/"+action), token, s.act(action)).into(t, &last)
					acted := last.Committed && action == "commit" || last.Revealed && action == "reveal"
					if want := map[string][]string{"commit": {"COMMITTING", "REVEALING"}, "reveal": {"REVEALING", "COMPUTED"}}[action][p]; !acted || last.State != want {
						t.Errorf("%s of party %d: %+v, want %s", action, p, last, want)
					}
				}
			}
			if last.Result == nil {
				t.Errorf("the last reveal has no result: %+v", last)
			}
			w.exactly(2, 1)
			w.converged()
			invariants(t, stack)
			// That of the key ended at the key's first use.
			if n := w.number("SELECT count(*) FROM idempotency"); n != 7 {
				t.Errorf("%d idempotency records, want 7", n)
			}
		})
	}
}
