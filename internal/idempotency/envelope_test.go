package idempotency_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
)

// scopeOf is the record's scope as every release makes it.
func (b *bench) scopeOf(req idempotency.Request) []byte {
	return b.secret.MAC([]byte("scope"), []byte(req.Caller), []byte(req.Method), []byte(req.Path), []byte(req.Key))
}

// Two releases run side by side while one replaces the other: each reads what
// the other stored.
func TestTheReleaseBeforeReadsWhatIsStored(t *testing.T) {
	b := newBench(t)
	for name, effect := range map[string]effect{"stored later": b.later, "stored at once": b.atOnce} {
		t.Run(name, func(t *testing.T) {
			req := request(name, "{}")
			answer := b.do(t, 0, req, effect, never(t, "render"))
			var body, sealed []byte
			if err := b.sql.QueryRow(t.Context(), "SELECT body, response FROM idempotency WHERE scope = $1", b.scopeOf(req)).Scan(&body, &sealed); err != nil {
				t.Fatal(err)
			}
			if string(body) != string(b.secret.MAC([]byte("body"), []byte("{}"))) {
				t.Error("the body's MAC is another one")
			}
			text, err := b.secret.Unsealed(sealed, []byte(req.Key), []byte(req.Caller), b.scopeOf(req))
			if err != nil {
				t.Fatal(err)
			}
			var kept struct { // of the release before
				Status int             `json:"status"`
				Body   json.RawMessage `json:"body"`
			}
			if err := json.Unmarshal(text, &kept); err != nil {
				t.Fatal(err)
			}
			var inside reply
			if err := json.Unmarshal(kept.Body, &inside); err != nil || kept.Status != 201 || inside != answer {
				t.Errorf("kept is %s, answered was %v", text, answer)
			}
		})
	}
}

func TestARecordOfTheReleaseBeforeIsReplayed(t *testing.T) {
	b := newBench(t)
	for name, keep := range map[string]func(scope, body, sealed []byte) error{
		"from Postgres": func(scope, body, sealed []byte) error {
			_, err := b.sql.Exec(t.Context(), "INSERT INTO idempotency (scope, body, response, expires_at) VALUES ($1, $2, $3, extract(epoch FROM now())::bigint + 600)", scope, body, sealed)
			return err
		},
		"from Redis": func(scope, body, sealed []byte) error {
			return b.redis.Set(t.Context(), "fairpact:copy:"+base64.RawURLEncoding.EncodeToString(scope), append(body, sealed...), time.Hour).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(name, "{}")
			scope := b.scopeOf(req)
			// The release before kept the whole REST body, with members that are made again now.
			sealed, err := b.secret.Sealed([]byte(`{"status":201,"body":{"number":4711,"next":"wait"}}`), []byte(req.Key), []byte(req.Caller), scope)
			if err == nil {
				err = keep(scope, b.secret.MAC([]byte("body"), []byte("{}")), sealed)
			}
			if err != nil {
				t.Fatal(err)
			}
			for replica := range b.guards {
				if got := b.do(t, replica, req, noEffect(t), never(t, "render")); got.Number != 4711 {
					t.Errorf("replayed is %v", got)
				}
			}
			another := request(name, `{"other":1}`)
			if _, err := b.try(t, 0, another, noEffect(t), never(t, "render")); !problem.Is(err, problem.IdempotencyKeyReused) {
				t.Errorf("another body: %v", err)
			}
		})
	}
}
