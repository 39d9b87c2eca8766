package e2e

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/localstack"
)

// once is a POST that is sent again with the same Idempotency-Key.
type once struct {
	c                *client
	path, token, key string
	sent             any
}

func (c *client) once(path, token string, sent any) once {
	return once{c, path, token, rand.Text(), sent}
}

func (o once) want(status int) answer {
	o.c.t.Helper()
	return o.c.want(status, "POST", o.path, o.token, o.sent, "Idempotency-Key", o.key)
}

// replays sends the request again and requires the very same answer.
func (o once) replays(first answer) {
	o.c.t.Helper()
	if a := o.want(first.status); !bytes.Equal(a.body, first.body) {
		o.c.t.Errorf("POST %s replayed %s, and first was answered %s", o.path, a.body, first.body)
	}
}

// deal-api is killed between an effect and its answer: the retry, at another
// replica at once and at the killed one after its restart, replays the one
// outcome.
func TestReplayAfterAKill(t *testing.T) {
	t.Parallel()
	stack := own(t, func(o *localstack.Options) { o.Replicas = map[string]int{localstack.DealAPI: 2} })
	first, second := newClient(t, stack.BaseURL()), newClient(t, stack.URL(secondAPI))
	w, redis := database(t, stack), cache(t, stack)
	// killed sends a request to a deal-api that dies at the point, and gives the
	// answer to the retry. The dead one's lock stays in Redis where locks is true.
	killed := func(point string, locks bool, path, token string, sent any) answer {
		t.Helper()
		if err := stack.Restart(t.Context(), localstack.DealAPI, "FAIRPACT_CRASH_AT="+point); err != nil {
			t.Fatal(err)
		}
		o := first.once(path, token, sent)
		if a, err := first.try(t.Context(), "POST", path, token, sent, "Idempotency-Key", o.key); err == nil {
			t.Fatalf("POST %s was answered %d %s and should have died at %s", path, a.status, a.body, point)
		}
		<-stack.Ended(localstack.DealAPI)
		if !locks {
			if err := redis.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		retry := o
		retry.c = second
		status := 200
		if path == "/v1/keys" || path == "/v1/deals" {
			status = 201
		}
		a := retry.want(status)
		if err := stack.Start(t.Context(), localstack.DealAPI); err != nil {
			t.Fatal(err)
		}
		o.replays(a)
		return a
	}

	const effect = "idempotency.effect"
	var made struct {
		APIKey string `json:"api_key"`
	}
	killed(effect, false, "/v1/keys", "", nil).into(t, &made)
	if n := w.number("SELECT count(*) FROM api_keys"); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	b := timed(splitBody(0, 0), after(5*patience), after(6*patience))
	d := second.created(made.APIKey, killed(effect, true, "/v1/deals", made.APIKey, b))
	w.exactly(1, 0)

	cancelled := second.createWith(made.APIKey, b)
	if a := killed(effect, false, cancelled.path("/cancel"), made.APIKey, nil); !strings.Contains(string(a.body), `"CANCELLED"`) {
		t.Errorf("cancel: %s", a.body)
	}

	s := seal(t, body{"valuations": body{"car": 2}})
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
		a := killed(cut.point, cut.locks, d.path("/"+cut.action), d.Tokens[cut.party], s.act(cut.action))
		if !strings.Contains(string(a.body), cut.holds) {
			t.Errorf("%s of party %d replays %s, want %s", cut.action, cut.party, a.body, cut.holds)
		}
	}
	w.exactly(2, 1)
	invariants(t, stack)
	if r := second.verify(*d.view().CertificateID); !r.Valid {
		t.Errorf("verification: %+v", r)
	}
}

// SPEC 7.4: a key that comes back with another body is a 409; the same body in
// another form is the same body, and nobody else's key is this one.
func TestReplayWantsTheSameBody(t *testing.T) {
	c := newClient(t, baseURL(t))
	key := c.key()
	b := timed(splitBody(0, 0), after(5*patience), after(6*patience))
	creation := c.once("/v1/deals", key, b)
	created := creation.want(201)
	d := c.created(key, created)
	s, other := seal(t, body{"valuations": body{"car": 2}}), seal(t, body{"valuations": body{"boat": 3}})
	idle := c.createWith(key, b)

	for _, x := range []struct {
		path, token string
		sent        any
		another     any
		respelt     string
	}{
		{"/v1/keys", "", nil, `{"a":1}`, " {\n} "},
		{creation.path, key, b, timed(splitBody(0, 0), b["commit_deadline"].(int64)+1, b["reveal_deadline"].(int64)), ""},
		{d.path("/commit"), d.Tokens[0], s.act("commit"), other.act("commit"), `{"commitment" : "\u0073` + s.Commitment[1:] + `" }`},
		{idle.path("/cancel"), key, nil, `{"a":1}`, " { } "},
	} {
		o := c.once(x.path, x.token, x.sent)
		if x.path == creation.path {
			o = creation
		}
		status := 200
		if x.path == "/v1/keys" || x.path == "/v1/deals" {
			status = 201
		}
		first := o.want(status)
		o.replays(first)
		c.refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", x.path, x.token, x.another, "Idempotency-Key", o.key)
		if x.respelt != "" {
			o.sent = x.respelt
		}
		o.replays(first)
	}
	d.commit(1, s)
	reveal := c.once(d.path("/reveal"), d.Tokens[1], s.act("reveal"))
	revealed := reveal.want(200)
	c.refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", reveal.path, reveal.token, other.act("reveal"), "Idempotency-Key", reveal.key)
	reveal.replays(revealed)
	// The key belongs to its caller and path.
	if d := c.created("", c.want(201, "POST", "/v1/deals", c.key(), b, "Idempotency-Key", creation.key)); d.ID == c.created("", created).ID {
		t.Error("another caller was given this caller's deal")
	}
	for _, bad := range [][]string{{""}, {"two words"}, {strings.Repeat("x", 256)}, {"one", "two"}, {"ü"}} {
		var headers []string
		for _, value := range bad {
			headers = append(headers, "Idempotency-Key", value)
		}
		c.refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", "/v1/keys", "", nil, headers...)
	}
	c.want(201, "POST", "/v1/keys", "", nil, "Idempotency-Key", strings.Repeat("~", 255))
}

// Only success is stored: a refused call changed nothing and may be mended and
// sent again under the same key.
func TestOnlySuccessIsReplayed(t *testing.T) {
	c, w := newClient(t, baseURL(t)), database(t, shared(t))
	key := c.key()
	records := func() int64 { return w.number("SELECT count(*) FROM idempotency") }
	b := timed(splitBody(0, 0), after(5*patience), after(6*patience))
	before := records()

	creation := c.once("/v1/deals", key, timed(splitBody(0, 0), 1, 2))
	creation.want(400)
	creation.sent = b
	d := c.created(key, creation.want(201))

	s, other := seal(t, body{"valuations": body{"car": 2}}), seal(t, body{"valuations": body{"boat": 3}})
	early := c.once(d.path("/reveal"), d.Tokens[0], s.act("reveal"))
	early.want(409)
	commit := c.once(d.path("/commit"), d.Tokens[0], body{"commitment": "sha256:short"})
	commit.want(400)
	commit.sent = s.act("commit")
	commit.want(200)
	c.once(d.path("/cancel"), d.Tokens[0], nil).want(403)
	d.commit(1, s)
	cancel := c.once(d.path("/cancel"), key, nil)
	cancel.want(409)
	cancel.want(409)

	wrong := c.once(d.path("/reveal"), d.Tokens[1], other.act("reveal"))
	wrong.want(400)
	wrong.sent = s.act("reveal")
	wrong.want(200)
	early.want(200)
	if n := records() - before; n != 4 {
		t.Errorf("%d records, want those of the create, the commit and the two reveals", n)
	}
}

// A response is replayed for 24 hours, and that of a key for ten minutes and
// until the key's first use; then the header is free again.
func TestReplayEnds(t *testing.T) {
	c, w := newClient(t, baseURL(t)), database(t, shared(t))
	// The newest record's remaining lifetime is cut, in Redis as well.
	expire := func(lifetime int64) {
		t.Helper()
		const newest = "expires_at - extract(epoch FROM clock_timestamp())::bigint BETWEEN $1 - 60 AND $1"
		w.exec(1, "UPDATE idempotency SET expires_at = expires_at - $1::bigint WHERE "+newest, lifetime)
		if err := cache(t, shared(t)).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Other tests' records are not the newest, and a key's is told by its lifetime.
	if _, err := w.pool.Exec(t.Context(), "DELETE FROM idempotency"); err != nil {
		t.Fatal(err)
	}
	apiKey := func(a answer) (k struct {
		APIKey string `json:"api_key"`
	}) {
		a.into(t, &k)
		return k
	}

	issue := c.once("/v1/keys", "", nil)
	first := issue.want(201)
	issue.replays(first)
	expire(600)
	second := issue.want(201)
	if bytes.Equal(first.body, second.body) {
		t.Error("a key was replayed after its ten minutes")
	}
	issue.replays(second)
	key := apiKey(second).APIKey
	c.refused(403, "FORBIDDEN", "GET", "/v1/deals/d_unknown/certificate", key, nil) // its first use
	if third := issue.want(201); bytes.Equal(second.body, third.body) {
		t.Error("a key was replayed after its first use")
	}

	create := c.once("/v1/deals", key, timed(splitBody(0, 0), after(5*patience), after(6*patience)))
	deal := create.want(201)
	create.replays(deal)
	expire(24 * 3600)
	if again := create.want(201); bytes.Equal(deal.body, again.body) {
		t.Error("a creation was replayed after its 24 hours")
	}
}

// Whoever holds the database and Redis, but neither the header nor the
// credential, reads nothing of a stored response.
func TestStoredResponseIsUnreadable(t *testing.T) {
	t.Parallel()
	stack := own(t, nil)
	c := newClient(t, stack.BaseURL())
	var secrets []marker
	keep := func(name, text string) { secrets = append(secrets, marker{name, text}) }
	send := func(status int, path, token string, sent any) answer {
		o := c.once(path, token, sent)
		a := o.want(status)
		o.replays(a)
		keep("the header of "+path, o.key)
		keep("the answer to "+path, string(a.body))
		return a
	}
	var made struct {
		APIKey string `json:"api_key"`
	}
	send(201, "/v1/keys", "", nil).into(t, &made)

	unused := send(201, "/v1/keys", "", nil)
	keep("an unused key", strings.Split(string(unused.body), `"`)[3])
	keep("the key", made.APIKey)
	d := c.created(made.APIKey, send(201, "/v1/deals", made.APIKey, timed(shapleyBody(0, 0), after(5*patience), after(6*patience))))
	s := seal(t, body{"accept": true})
	for _, action := range []string{"commit", "reveal"} {
		for p, token := range d.Tokens {
			send(200, d.path("/"+action), token, s.act(action))
			keep("token", d.Tokens[p])
		}
	}
	keep("a member's name of the answers", `"invite_tokens"`)
	keep("another", `"api_key"`)
	keep("the path", d.path("/commit"))

	places := map[string][]byte{}
	for name, content := range dumped(t, stack) {
		if name == "table public.idempotency" || strings.HasPrefix(name, "Redis ") {
			places[name] = content
		}
	}
	if rows := bytes.Count(places["table public.idempotency"], []byte("\n")); rows != 6 || len(places) < 6 {
		t.Fatalf("%d records in %d places: not what was to be searched", rows, len(places))
	}
	for _, m := range secrets {
		if found := m.shownIn(places); found != nil {
			t.Errorf("%s is readable in %v", m.name, found)
		}
	}
}
