package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

const tooLarge = 4<<20 + 1

// The checks come in one order: each call below fails its own check and every
// later one, and is answered by its own.
func TestOrderOfChecks(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	other := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	first, second := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	d.Commit(0, first)
	c.Want(200, "POST", d.Path("/commit"), d.Tokens[1], second.Act("commit"), "Idempotency-Key", "used")
	huge := strings.Repeat(" ", tooLarge)
	badKey := []string{"Idempotency-Key", "not visible"}
	// A body that is not read does not have to be sent.
	announced := append([]string{"Expect", "100-continue"}, badKey...)

	for _, action := range []string{"/commit", "/reveal"} {
		post := func(status int, code, token string, sent any, header ...string) {
			t.Helper()
			c.Refused(status, code, "POST", d.Path(action), token, sent, header...)
		}
		c.Refused(404, "NOT_FOUND", "POST", d.Path(action+"x"), "", huge, announced...)
		c.Refused(405, "METHOD_NOT_ALLOWED", "PUT", d.Path(action), "", huge, announced...)
		post(401, "AUTH_REQUIRED", "", huge, announced...)
		post(401, "INVALID_CREDENTIAL", "it_unknown", huge, announced...)
		post(403, "FORBIDDEN", other.Tokens[0], huge, announced...)
		post(403, "FORBIDDEN", d.Key, huge, announced...)
		c.Refused(403, "FORBIDDEN", "POST", "/v1/deals/none"+action, d.Tokens[0], huge, announced...)
		post(413, "BODY_TOO_LARGE", d.Tokens[1], huge, badKey...)
		post(400, "INVALID_JSON", d.Tokens[1], `{"commitment":1.5,"input":{}`, badKey...)
		post(400, "INVALID_REQUEST", d.Tokens[1], `{"commitment":7,"input":7}`, "Idempotency-Key", "used")
	}
	c.Refused(400, "INVALID_COMMITMENT", "POST", d.Path("/commit"), d.Tokens[1], `{"commitment":"sha256:00"}`, "Idempotency-Key", "used")
	// Idempotency before the state: the deal is REVEALING, so a commit is late.
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.Path("/commit"), d.Tokens[1], second.Act("commit"), badKey...)
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", d.Path("/commit"), d.Tokens[1], first.Act("commit"), "Idempotency-Key", "used")
	c.Refused(409, "ALREADY_COMMITTED", "POST", d.Path("/commit"), d.Tokens[1], first.Act("commit"), "Idempotency-Key", "unused")

	// The state before what the reveal opens to, and that before the algorithm.
	wrong := e2e.Body{"input": e2e.Body{"valuations": e2e.Body{"plane": -1}}, "salt": ""}
	c.Refused(409, "COMMITS_MISSING", "POST", other.Path("/reveal"), other.Tokens[0], wrong)
	c.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], wrong)
	d.Reveal(0, first)
	c.Refused(409, "ALREADY_REVEALED", "POST", d.Path("/reveal"), d.Tokens[0], wrong)
	d.Reveal(1, second)
	c.Refused(409, "DEAL_ENDED", "POST", d.Path("/reveal"), d.Tokens[0], wrong)
}

// The same for the calls without a party.
func TestOrderOfChecksOfTheOthers(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	huge := strings.Repeat(" ", tooLarge)
	badKey := []string{"Idempotency-Key", "not visible"}
	announced := append([]string{"Expect", "100-continue"}, badKey...)

	c.Refused(401, "AUTH_REQUIRED", "POST", "/v1/deals", "", huge, announced...)
	c.Refused(401, "INVALID_CREDENTIAL", "POST", "/v1/deals", "fp_unknown", huge, announced...)
	c.Refused(403, "FORBIDDEN", "POST", "/v1/deals", d.Tokens[0], huge, announced...)
	c.Refused(413, "BODY_TOO_LARGE", "POST", "/v1/deals", d.Key, huge, badKey...)
	c.Refused(400, "INVALID_JSON", "POST", "/v1/deals", d.Key, "{", badKey...)
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/deals", d.Key, "{}", badKey...)
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	c.Want(201, "POST", "/v1/deals", d.Key, b, "Idempotency-Key", "used")
	b["algorithm"] = "split.v9"
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", "/v1/deals", d.Key, b, "Idempotency-Key", "used")
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/deals", d.Key, b)

	c.Refused(413, "BODY_TOO_LARGE", "POST", "/v1/keys", "", huge, badKey...)
	c.Refused(400, "INVALID_JSON", "POST", "/v1/keys", "", "x", badKey...)
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/keys", "", "[]", badKey...)
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", "/v1/keys", "", "{}", badKey...)

	c.Refused(401, "AUTH_REQUIRED", "POST", d.Path("/cancel"), "", huge, announced...)
	c.Refused(403, "FORBIDDEN", "POST", d.Path("/cancel"), d.Tokens[0], huge, announced...)
	c.Refused(413, "BODY_TOO_LARGE", "POST", d.Path("/cancel"), d.Key, huge, badKey...)
	c.Refused(400, "INVALID_JSON", "POST", d.Path("/cancel"), d.Key, "x", badKey...)
	c.Refused(400, "INVALID_REQUEST", "POST", d.Path("/cancel"), d.Key, "[]", badKey...)
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.Path("/cancel"), d.Key, "", badKey...)
	c.Want(200, "POST", d.Path("/cancel"), d.Key, "", "Idempotency-Key", "used")
	c.Refused(409, "IDEMPOTENCY_KEY_REUSED", "POST", d.Path("/cancel"), d.Key, `{"why":1}`, "Idempotency-Key", "used")
	c.Refused(409, "CANNOT_CANCEL", "POST", d.Path("/cancel"), d.Key, `{"why":1}`)

	c.Refused(401, "AUTH_REQUIRED", "POST", d.Path("/entropy"), "", nil, badKey...)
	c.Refused(403, "FORBIDDEN", "POST", "/v1/deals/none/entropy", d.Key, nil, badKey...)
	c.Refused(400, "INVALID_IDEMPOTENCY_KEY", "POST", d.Path("/entropy"), d.Key, nil, badKey...)
	c.Refused(409, "WRONG_ALGORITHM", "POST", d.Path("/entropy"), d.Key, nil)
}

// The limit of a body is 4 MiB, that of a certificate 8 MiB, and 64 KiB where a call takes little, to the byte.
func TestBodyLimit(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	text := func(size int) string {
		b := e2e.SplitBody(time.Hour, 2*time.Hour)
		head := fmt.Sprintf(`{"algorithm":"split.v1","party_labels":["ann","bob"],"algorithm_params":{"items":["car"]},"commit_deadline":%d,"reveal_deadline":%d,"note":"`,
			b["commit_deadline"], b["reveal_deadline"])
		return head + strings.Repeat("x", size-len(head)-2) + `"}`
	}
	c.Want(201, "POST", "/v1/deals", key, text(tooLarge-1))
	c.Refused(413, "BODY_TOO_LARGE", "POST", "/v1/deals", key, text(tooLarge))
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/verify", "", "{"+strings.Repeat(" ", 8<<20-2)+"}")
	c.Refused(413, "BODY_TOO_LARGE", "POST", "/v1/verify", "", "{"+strings.Repeat(" ", 8<<20-1)+"}")
	c.Want(201, "POST", "/v1/keys", "", "{"+strings.Repeat(" ", 65_534)+"}")
	c.Refused(413, "BODY_TOO_LARGE", "POST", "/v1/keys", "", "{"+strings.Repeat(" ", 65_535)+"}")
}
