package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// Each call with an Idempotency-Key follows SPEC 7.4. A refused call stores nothing, so a
// corrected body is accepted under the same key. The same body gets the stored response,
// even in another JSON spelling. A different body gets a 409. The same
// Idempotency-Key from another caller is a new call.
func TestReplays(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	b := e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.DefaultTimeout), e2e.After(6*e2e.DefaultTimeout))
	s, other := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 2}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 3}})
	d, idle := c.CreateWith(key, b), c.CreateWith(key, b)
	d.Commit(1, s)
	early := c.NewIdempotentPost(d.Path("/reveal"), d.Tokens[0], s.Act("reveal"))
	early.Want(409)
	creation := c.NewIdempotentPost("/v1/deals", key, nil)
	for _, x := range []struct {
		status                 int
		path, token            string
		refused, sent, another any // bodies: `refused` gets 400, `sent` succeeds, `another` under the same key gets 409
		respelt                string
	}{
		{201, "/v1/keys", "", "[]", nil, `{"a":1}`, " {\n} "},
		{201, "/v1/deals", key, e2e.Timed(e2e.SplitBody(0, 0), 1, 2), b, changed(b, "mode", "open"), ""},
		{200, d.Path("/commit"), d.Tokens[0], e2e.Body{"commitment": "sha256:short"}, s.Act("commit"), other.Act("commit"), `{"commitment" : "\u0073` + s.Commitment[1:] + `" }`},
		{200, d.Path("/reveal"), d.Tokens[1], other.Act("reveal"), s.Act("reveal"), other.Act("reveal"), ""},
		{200, idle.Path("/cancel"), key, "[]", nil, `{"a":1}`, " { } "},
	} {
		o := c.NewIdempotentPost(x.path, x.token, x.refused)
		o.Want(400)
		o.Sent = x.sent
		first := o.Want(x.status)
		o.Replays(first)
		c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", x.path, x.token, x.another, "Idempotency-Key", o.Key)
		if x.respelt != "" {
			o.Sent = x.respelt
			o.Replays(first)
		}
		if x.path == creation.Path {
			creation = o
			if other := c.Want(201, "POST", x.path, c.Key(), b, "Idempotency-Key", o.Key); c.Created("", other).ID == c.Created("", first).ID {
				t.Error("another caller's creation under the same Idempotency-Key returned the first caller's deal")
			}
		}
	}
	early.Want(200)
}

func TestFormOfAnIdempotencyKey(t *testing.T) {
	c := newClient(t)
	for _, bad := range [][]string{{""}, {"two words"}, {"tab\tinside"}, {strings.Repeat("x", 256)}, {"one", "two"}, {"same", "same"}, {"ü"}, {"\xff"}} {
		var headers []string
		for _, value := range bad {
			headers = append(headers, "Idempotency-Key", value)
		}
		a := c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", "/v1/keys", "", nil, headers...)
		if len(bad[0]) > 8 && strings.Contains(a.ErrorText(), bad[0]) {
			t.Errorf("the error repeats the Idempotency-Key, which is a secret: %s", a.ErrorText())
		}
	}
	for _, good := range []string{"a", "!~", strings.Repeat("~", 255)} {
		c.Want(201, "POST", "/v1/keys", "", nil, "Idempotency-Key", good)
	}
}

// A response is replayed for 24 hours. A response with a new API key is replayed for ten minutes,
// and only until the first use of that API key. Afterwards the Idempotency-Key can be used again.
func TestReplayEnds(t *testing.T) {
	c, w := newClient(t), e2e.OpenDB(t, e2e.Shared(t))
	// expire moves expires_at of the newest idempotency record into the past. `lifetime` is that record's
	// full lifetime in seconds. expire also empties Redis, so that only the database decides.
	expire := func(lifetime int64) {
		t.Helper()
		const newest = "expires_at - extract(epoch FROM clock_timestamp())::bigint BETWEEN $1 - 60 AND $1"
		w.Exec(1, "UPDATE idempotency SET expires_at = expires_at - $1::bigint WHERE "+newest, lifetime)
		if err := e2e.Cache(t, e2e.Shared(t)).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Delete the records of other tests, because `expire` would also change those with the same lifetime.
	if _, err := w.Pool.Exec(t.Context(), "DELETE FROM idempotency"); err != nil {
		t.Fatal(err)
	}
	issue := c.NewIdempotentPost("/v1/keys", "", nil)
	first := issue.Want(201)
	issue.Replays(first)
	expire(600)
	second := issue.Want(201)
	if bytes.Equal(first.Body, second.Body) {
		t.Error("a key was replayed after its ten minutes")
	}
	issue.Replays(second)
	key := e2e.AsBody(t, string(second.Body))["api_key"].(string)
	c.Refused(403, "FORBIDDEN", "GET", "/v1/deals/d_unknown/certificate", key, nil) // the first use of the API key
	if third := issue.Want(201); bytes.Equal(second.Body, third.Body) {
		t.Error("a key was replayed after its first use")
	}

	create := c.NewIdempotentPost("/v1/deals", key, e2e.Timed(e2e.SplitBody(0, 0), e2e.After(5*e2e.DefaultTimeout), e2e.After(6*e2e.DefaultTimeout)))
	deal := create.Want(201)
	create.Replays(deal)
	expire(24 * 3600)
	if again := create.Want(201); bytes.Equal(deal.Body, again.Body) {
		t.Error("a creation was replayed after its 24 hours")
	}
}
