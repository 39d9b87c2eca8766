package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const tooLarge = 4<<20 + 1

// The checks come in one order: each call below fails its own check and every
// later one, and is answered by its own.
func TestOrderOfChecks(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	other := c.create(splitBody(time.Hour, 2*time.Hour))
	first, second := seal(t, annsValues), seal(t, bobsValues)
	d.commit(0, first)
	c.want(200, "POST", d.path("/commit"), d.Tokens[1], second.act("commit"), "Idempotency-Key", "used")
	huge := strings.Repeat(" ", tooLarge)
	badKey := []string{"Idempotency-Key", "not visible"}
	// A body that is not read does not have to be sent.
	announced := append([]string{"Expect", "100-continue"}, badKey...)

	for _, action := range []string{"/commit", "/reveal"} {
		post := func(status int, code, token string, sent any, header ...string) {
			t.Helper()
			c.refused(status, code, "POST", d.path(action), token, sent, header...)
		}
		c.refused(404, "NOT_FOUND", "POST", d.path(action+"x"), "", huge, announced...)
		c.refused(405, "METHOD_NOT_ALLOWED", "PUT", d.path(action), "", huge, announced...)
		post(401, "AUTH_REQUIRED", "", huge, announced...)
		post(401, "INVALID_CREDENTIAL", "it_unknown", huge, announced...)
		post(403, "FORBIDDEN", other.Tokens[0], huge, announced...)
		post(403, "FORBIDDEN", d.Key, huge, announced...)
		c.refused(403, "FORBIDDEN", "POST", "/v1/deals/none"+action, d.Tokens[0], huge, announced...)
		post(413, "BODY_TOO_LARGE", d.Tokens[1], huge, badKey...)
		post(400, "INVALID_JSON", d.Tokens[1], `{"commitment":1.5,"input":{}`, badKey...)
		post(400, "INVALID_REQUEST", d.Tokens[1], `{"commitment":7,"input":7}`, "Idempotency-Key", "used")
	}
	c.refused(400, "INVALID_COMMITMENT", "POST", d.path("/commit"), d.Tokens[1], `{"commitment":"sha256:00"}`, "Idempotency-Key", "used")
	// Idempotency before the state: the deal is REVEALING, so a commit is late.
	c.refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.path("/commit"), d.Tokens[1], second.act("commit"), badKey...)
	c.refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", d.path("/commit"), d.Tokens[1], first.act("commit"), "Idempotency-Key", "used")
	c.refused(409, "ALREADY_COMMITTED", "POST", d.path("/commit"), d.Tokens[1], first.act("commit"), "Idempotency-Key", "unused")

	// The state before what the reveal opens to, and that before the algorithm.
	wrong := body{"input": body{"valuations": body{"plane": -1}}, "salt": ""}
	c.refused(409, "COMMITS_MISSING", "POST", other.path("/reveal"), other.Tokens[0], wrong)
	c.refused(400, "COMMITMENT_MISMATCH", "POST", d.path("/reveal"), d.Tokens[0], wrong)
	d.reveal(0, first)
	c.refused(409, "ALREADY_REVEALED", "POST", d.path("/reveal"), d.Tokens[0], wrong)
	d.reveal(1, second)
	c.refused(409, "DEAL_ENDED", "POST", d.path("/reveal"), d.Tokens[0], wrong)
}

// The same for the calls without a party.
func TestOrderOfChecksOfTheOthers(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	huge := strings.Repeat(" ", tooLarge)
	badKey := []string{"Idempotency-Key", "not visible"}
	announced := append([]string{"Expect", "100-continue"}, badKey...)

	c.refused(401, "AUTH_REQUIRED", "POST", "/v1/deals", "", huge, announced...)
	c.refused(401, "INVALID_CREDENTIAL", "POST", "/v1/deals", "fp_unknown", huge, announced...)
	c.refused(403, "FORBIDDEN", "POST", "/v1/deals", d.Tokens[0], huge, announced...)
	c.refused(413, "BODY_TOO_LARGE", "POST", "/v1/deals", d.Key, huge, badKey...)
	c.refused(400, "INVALID_JSON", "POST", "/v1/deals", d.Key, "{", badKey...)
	c.refused(400, "INVALID_REQUEST", "POST", "/v1/deals", d.Key, "{}", badKey...)
	b := splitBody(time.Hour, 2*time.Hour)
	c.want(201, "POST", "/v1/deals", d.Key, b, "Idempotency-Key", "used")
	b["algorithm"] = "split.v9"
	c.refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", "/v1/deals", d.Key, b, "Idempotency-Key", "used")
	c.refused(400, "INVALID_REQUEST", "POST", "/v1/deals", d.Key, b)

	c.refused(413, "BODY_TOO_LARGE", "POST", "/v1/keys", "", huge, badKey...)
	c.refused(400, "INVALID_JSON", "POST", "/v1/keys", "", "x", badKey...)
	c.refused(400, "INVALID_REQUEST", "POST", "/v1/keys", "", "[]", badKey...)
	c.refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", "/v1/keys", "", "{}", badKey...)

	c.refused(401, "AUTH_REQUIRED", "POST", d.path("/cancel"), "", huge, announced...)
	c.refused(403, "FORBIDDEN", "POST", d.path("/cancel"), d.Tokens[0], huge, announced...)
	c.refused(413, "BODY_TOO_LARGE", "POST", d.path("/cancel"), d.Key, huge, badKey...)
	c.refused(400, "INVALID_JSON", "POST", d.path("/cancel"), d.Key, "x", badKey...)
	c.refused(400, "INVALID_REQUEST", "POST", d.path("/cancel"), d.Key, "[]", badKey...)
	c.refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.path("/cancel"), d.Key, "", badKey...)
	c.want(200, "POST", d.path("/cancel"), d.Key, "", "Idempotency-Key", "used")
	c.refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", d.path("/cancel"), d.Key, `{"why":1}`, "Idempotency-Key", "used")
	c.refused(409, "CANNOT_CANCEL", "POST", d.path("/cancel"), d.Key, `{"why":1}`)

	c.refused(401, "AUTH_REQUIRED", "POST", d.path("/entropy"), "", nil, badKey...)
	c.refused(403, "FORBIDDEN", "POST", "/v1/deals/none/entropy", d.Key, nil, badKey...)
	c.refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.path("/entropy"), d.Key, nil, badKey...)
	c.refused(409, "WRONG_ALGORITHM", "POST", d.path("/entropy"), d.Key, nil)
}

// The limit of a body is 4 MiB, and 64 KiB without a credential, to the byte.
func TestBodyLimit(t *testing.T) {
	c := surfaceClient(t)
	key := c.key()
	text := func(size int) string {
		b := splitBody(time.Hour, 2*time.Hour)
		head := fmt.Sprintf(`{"algorithm":"split.v1","party_labels":["ann","bob"],"algorithm_params":{"items":["car"]},"commit_deadline":%d,"reveal_deadline":%d,"note":"`,
			b["commit_deadline"], b["reveal_deadline"])
		return head + strings.Repeat("x", size-len(head)-2) + `"}`
	}
	c.want(201, "POST", "/v1/deals", key, text(tooLarge-1))
	c.refused(413, "BODY_TOO_LARGE", "POST", "/v1/deals", key, text(tooLarge))
	c.want(201, "POST", "/v1/keys", "", "{"+strings.Repeat(" ", 65_534)+"}")
	c.refused(413, "BODY_TOO_LARGE", "POST", "/v1/keys", "", "{"+strings.Repeat(" ", 65_535)+"}")
}
