package api

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestOrderOfChecks(t *testing.T) {
	c := newClient(t)
	d, other := c.Create(split()), c.Create(split())
	first, second := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	d.Commit(0, first)
	c.Want(200, "POST", d.Path("/commit"), d.Tokens[1], second.Act("commit"), "Idempotency-Key", "used")
	huge := strings.Repeat(" ", bodyLimit+1)
	badKey := []string{"Idempotency-Key", "not visible"}
	used := []string{"Idempotency-Key", "used"}
	// With Expect: 100-continue, the client does not send the huge body if an earlier check fails.
	announced := append([]string{"Expect", "100-continue"}, badKey...)

	for _, call := range []struct{ path, token, forbidden, mistyped string }{
		{"/v1/deals", d.Key, d.Tokens[0], "{}"},
		{d.Path("/commit"), d.Tokens[1], other.Tokens[0], `{"commitment":7}`},
		{d.Path("/reveal"), d.Tokens[1], d.Key, `{"input":7}`},
		{d.Path("/cancel"), d.Key, d.Tokens[0], "[]"},
	} {
		c.Refused(404, "NOT_FOUND", "POST", call.path+"x/y", "", huge, announced...)
		c.Refused(405, "METHOD_NOT_ALLOWED", "PUT", call.path, "", huge, announced...)
		c.Refused(401, "AUTH_REQUIRED", "POST", call.path, "", huge, announced...)
		c.Refused(401, "INVALID_CREDENTIAL", "POST", call.path, "it_unknown", huge, announced...)
		c.Refused(403, "FORBIDDEN", "POST", call.path, call.forbidden, huge, announced...)
		c.Refused(413, "BODY_TOO_LARGE", "POST", call.path, call.token, huge, badKey...)
		c.Refused(400, "INVALID_JSON", "POST", call.path, call.token, `{"commitment":1.5,"input":{}`, badKey...)
		c.Refused(400, "INVALID_REQUEST", "POST", call.path, call.token, call.mistyped, badKey...)
	}
	c.Refused(400, "INVALID_COMMITMENT", "POST", d.Path("/commit"), d.Tokens[1], `{"commitment":"sha256:00"}`, badKey...)
	c.Refused(413, "BODY_TOO_LARGE", "POST", "/v1/keys", "", huge, badKey...)
	c.Refused(400, "INVALID_JSON", "POST", "/v1/keys", "", "x", badKey...)
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", "/v1/keys", "", "{}", badKey...)

	// The Idempotency-Key is checked before the state. d is REVEALING, so it accepts no commit.
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.Path("/commit"), d.Tokens[1], second.Act("commit"), badKey...)
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", d.Path("/commit"), d.Tokens[1], first.Act("commit"), used...)
	c.Refused(409, "ALREADY_COMMITTED", "POST", d.Path("/commit"), d.Tokens[1], first.Act("commit"))
	c.Refused(403, "FORBIDDEN", "POST", "/v1/deals/none/entropy", d.Key, nil, badKey...)
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.Path("/entropy"), d.Key, nil, badKey...)
	c.Refused(409, "WRONG_ALGORITHM", "POST", d.Path("/entropy"), d.Key, nil)
	c.Want(200, "POST", other.Path("/cancel"), other.Key, "", used...)
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", other.Path("/cancel"), other.Key, `{"why":1}`, used...)
	c.Refused(409, "CANNOT_CANCEL", "POST", other.Path("/cancel"), other.Key, `{"why":1}`)
	b := split()
	c.Want(201, "POST", "/v1/deals", d.Key, b, used...)
	b["algorithm"] = "split.v9"
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", "/v1/deals", d.Key, b, used...)
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/deals", d.Key, b)

	// The service checks first the state, then the commitment, and then the rules of the algorithm.
	wrong := e2e.Body{"input": e2e.Body{"valuations": e2e.Body{"plane": -1}}, "salt": ""}
	open := c.Create(split())
	c.Refused(409, "COMMITS_MISSING", "POST", open.Path("/reveal"), open.Tokens[0], wrong)
	c.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], wrong)
	d.Reveal(0, first)
	c.Refused(409, "ALREADY_REVEALED", "POST", d.Path("/reveal"), d.Tokens[0], wrong)
	d.Reveal(1, second)
	c.Refused(409, "DEAL_ENDED", "POST", d.Path("/reveal"), d.Tokens[0], wrong)
}
