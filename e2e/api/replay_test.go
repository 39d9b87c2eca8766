package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// SPEC 7.4: a key that comes back with another body is a 409; the same body in
// another form is the same body, and nobody else's key is this one.
func TestReplayWantsTheSameBody(t *testing.T) {
	c := e2e.NewClient(t, e2e.BaseURL(t))
	key := c.Key()
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience))
	creation := c.Once("/v1/deals", key, b)
	created := creation.Want(201)
	d := c.Created(key, created)
	s, other := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 2}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 3}})
	idle := c.CreateWith(key, b)

	for _, x := range []struct {
		path, token string
		sent        any
		another     any
		respelt     string
	}{
		{"/v1/keys", "", nil, `{"a":1}`, " {\n} "},
		{creation.Path, key, b, e2e.Timed(e2e.SplitBody(0, 0), b["commit_deadline"].(int64)+1, b["reveal_deadline"].(int64)), ""},
		{d.Path("/commit"), d.Tokens[0], s.Act("commit"), other.Act("commit"), `{"commitment" : "\u0073` + s.Commitment[1:] + `" }`},
		{idle.Path("/cancel"), key, nil, `{"a":1}`, " { } "},
	} {
		o := c.Once(x.path, x.token, x.sent)
		if x.path == creation.Path {
			o = creation
		}
		status := 200
		if x.path == "/v1/keys" || x.path == "/v1/deals" {
			status = 201
		}
		first := o.Want(status)
		o.Replays(first)
		c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", x.path, x.token, x.another, "Idempotency-Key", o.Key)
		if x.respelt != "" {
			o.Sent = x.respelt
		}
		o.Replays(first)
	}
	d.Commit(1, s)
	reveal := c.Once(d.Path("/reveal"), d.Tokens[1], s.Act("reveal"))
	revealed := reveal.Want(200)
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", reveal.Path, reveal.Token, other.Act("reveal"), "Idempotency-Key", reveal.Key)
	reveal.Replays(revealed)
	// The key belongs to its caller and path.
	if d := c.Created("", c.Want(201, "POST", "/v1/deals", c.Key(), b, "Idempotency-Key", creation.Key)); d.ID == c.Created("", created).ID {
		t.Error("another caller was given this caller's deal")
	}
	for _, bad := range [][]string{{""}, {"two words"}, {strings.Repeat("x", 256)}, {"one", "two"}, {"ü"}} {
		var headers []string
		for _, value := range bad {
			headers = append(headers, "Idempotency-Key", value)
		}
		c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", "/v1/keys", "", nil, headers...)
	}
	c.Want(201, "POST", "/v1/keys", "", nil, "Idempotency-Key", strings.Repeat("~", 255))
}

// Only success is stored: a refused call changed nothing and may be corrected and
// sent again under the same key.
func TestOnlySuccessIsReplayed(t *testing.T) {
	c, w := e2e.NewClient(t, e2e.BaseURL(t)), e2e.Database(t, e2e.Shared(t))
	key := c.Key()
	records := func() int64 { return w.Records() }
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience))
	before := records()

	creation := c.Once("/v1/deals", key, e2e.Timed(e2e.SplitBody(0, 0), 1, 2))
	creation.Want(400)
	creation.Sent = b
	d := c.Created(key, creation.Want(201))

	s, other := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 2}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 3}})
	early := c.Once(d.Path("/reveal"), d.Tokens[0], s.Act("reveal"))
	early.Want(409)
	commit := c.Once(d.Path("/commit"), d.Tokens[0], e2e.Body{"commitment": "sha256:short"})
	commit.Want(400)
	commit.Sent = s.Act("commit")
	commit.Want(200)
	c.Once(d.Path("/cancel"), d.Tokens[0], nil).Want(403)
	d.Commit(1, s)
	cancel := c.Once(d.Path("/cancel"), key, nil)
	cancel.Want(409)
	cancel.Want(409)

	wrong := c.Once(d.Path("/reveal"), d.Tokens[1], other.Act("reveal"))
	wrong.Want(400)
	wrong.Sent = s.Act("reveal")
	wrong.Want(200)
	early.Want(200)
	if n := records() - before; n != 4 {
		t.Errorf("%d records, want those of the create, the commit and the two reveals", n)
	}
}

// A response is replayed for 24 hours, and that of a key for ten minutes and
// until the key's first use; then the header is free again.
func TestReplayEnds(t *testing.T) {
	c, w := e2e.NewClient(t, e2e.BaseURL(t)), e2e.Database(t, e2e.Shared(t))
	// The newest record's remaining lifetime is cut, in Redis as well.
	expire := func(lifetime int64) {
		t.Helper()
		const newest = "expires_at - extract(epoch FROM clock_timestamp())::bigint BETWEEN $1 - 60 AND $1"
		w.Exec(1, "UPDATE idempotency SET expires_at = expires_at - $1::bigint WHERE "+newest, lifetime)
		if err := e2e.Cache(t, e2e.Shared(t)).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Other tests' records are not the newest, and a key's is told by its lifetime.
	if _, err := w.Pool.Exec(t.Context(), "DELETE FROM idempotency"); err != nil {
		t.Fatal(err)
	}
	apiKey := func(a e2e.Answer) (k struct {
		APIKey string `json:"api_key"`
	}) {
		a.Into(t, &k)
		return k
	}

	issue := c.Once("/v1/keys", "", nil)
	first := issue.Want(201)
	issue.Replays(first)
	expire(600)
	second := issue.Want(201)
	if bytes.Equal(first.Body, second.Body) {
		t.Error("a key was replayed after its ten minutes")
	}
	issue.Replays(second)
	key := apiKey(second).APIKey
	c.Refused(403, "FORBIDDEN", "GET", "/v1/deals/d_unknown/certificate", key, nil) // its first use
	if third := issue.Want(201); bytes.Equal(second.Body, third.Body) {
		t.Error("a key was replayed after its first use")
	}

	create := c.Once("/v1/deals", key, e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)))
	deal := create.Want(201)
	create.Replays(deal)
	expire(24 * 3600)
	if again := create.Want(201); bytes.Equal(deal.Body, again.Body) {
		t.Error("a creation was replayed after its 24 hours")
	}
}

// Whoever holds the database and Redis, but neither the header nor the
// credential, reads nothing of a stored response.
func TestStoredResponseIsUnreadable(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	var secrets []e2e.Marker
	keep := func(name, text string) { secrets = append(secrets, e2e.Marker{Name: name, Text: text}) }
	send := func(status int, path, token string, sent any) e2e.Answer {
		o := c.Once(path, token, sent)
		a := o.Want(status)
		o.Replays(a)
		keep("the header of "+path, o.Key)
		keep("the answer to "+path, string(a.Body))
		return a
	}
	var made struct {
		APIKey string `json:"api_key"`
	}
	send(201, "/v1/keys", "", nil).Into(t, &made)

	unused := send(201, "/v1/keys", "", nil)
	keep("an unused key", strings.Split(string(unused.Body), `"`)[3])
	keep("the key", made.APIKey)
	d := c.Created(made.APIKey, send(201, "/v1/deals", made.APIKey, e2e.Timed(e2e.ShapleyBody(0, 0), e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience))))
	s := e2e.Seal(t, e2e.Body{"accept": true})
	for _, action := range []string{"commit", "reveal"} {
		for p, token := range d.Tokens {
			send(200, d.Path("/"+action), token, s.Act(action))
			keep("token", d.Tokens[p])
		}
	}
	keep("a member's name of the answers", `"invite_tokens"`)
	keep("another", `"api_key"`)
	keep("the path", d.Path("/commit"))

	places := map[string][]byte{}
	for name, content := range e2e.Dumped(t, stack) {
		if name == "table public.idempotency" || strings.HasPrefix(name, "Redis ") {
			places[name] = content
		}
	}
	if rows := bytes.Count(places["table public.idempotency"], []byte("\n")); rows != 6 || len(places) < 6 {
		t.Fatalf("%d records in %d places: not what was to be searched", rows, len(places))
	}
	for _, m := range secrets {
		if found := m.ShownIn(places); found != nil {
			t.Errorf("%s is readable in %v", m.Name, found)
		}
	}
}
