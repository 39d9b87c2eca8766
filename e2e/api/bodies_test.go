package api

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

const (
	// Limits of request bodies, in bytes.
	bodyLimit       = 4 << 20
	smallBodyLimit  = 4 << 10 // for POST keys and POST cancel
	commitBodyLimit = 1 << 20
	verifyLimit     = 8 << 20
)

func nested(open, inner, end string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}

// Each body in malformed has one of three faults: it is not an object in I-JSON (RFC 7493), it contains
// a number that SPEC 8 does not allow, or it exceeds a limit of the parser. internal/rules/canon has more
// tests of the parser.
var malformed = map[string]string{
	"a blank": " ", "null": "null", "an array": "[]", "a string": `"x"`, "no value": `{"a":}`, "two values": `{}{}`, "a fraction": `{"a":1.5}`, "2^53": `{"a":9007199254740992}`,
	"a name twice": `{"a":1,"\u0061":1}`, "a lone surrogate": `{"a":"\ud800"}`, "not UTF-8": "{\"a\":\"\xff\"}", "a byte order mark": "\ufeff{}", "UTF-16": "{\x00}\x00",
	"a form": "commitment=x&input=y", "a page": "<html></html>", "33 levels": nested(`{"a":`, "1", "}", 33), "a million levels": nested("[", "", "]", 1_000_000),
	"131073 values": `{"a":[1` + strings.Repeat(",1", 131_070) + "]}", "two million blanks": strings.Repeat(" ", 2_000_000),
	"a long name twice": `{"` + strings.Repeat("n", 500_000) + `":1,"` + strings.Repeat("n", 500_000) + `":1}`,
}

func TestMalformedBodies(t *testing.T) {
	c, w := newClient(t), e2e.OpenDB(t, e2e.Shared(t))
	d, revealing := c.Create(split()), c.Committed(split(), e2e.Seal(t, e2e.AnnsValues).Commitment, e2e.Seal(t, e2e.BobsValues))
	state := func() string {
		one, other := c.Want(200, "GET", d.Path(""), d.Key, nil), c.Want(200, "GET", revealing.Path(""), revealing.Key, nil)
		return fmt.Sprintf("%d %d %s %s", w.Rows(), w.Records(), one.Body, other.Body)
	}
	before := state()
	for _, at := range []struct {
		path, token string
		limit       int
	}{
		{"/v1/keys", "", smallBodyLimit}, {"/v1/deals", d.Key, bodyLimit}, {d.Path("/commit"), d.Tokens[0], commitBodyLimit},
		{revealing.Path("/reveal"), revealing.Tokens[0], bodyLimit}, {d.Path("/cancel"), d.Key, smallBodyLimit}, {d.Path("/entropy"), d.Key, smallBodyLimit},
	} {
		for what, body := range malformed {
			want := 400
			if strings.HasSuffix(at.path, "/entropy") { // entropy ignores its body
				want = 409
			} else if len(body) > at.limit {
				want = 413
			}
			a := c.Do("POST", at.path, at.token, body, "Idempotency-Key", "malformed")
			if a.Status != want || want == 400 && a.Code() != "INVALID_JSON" && a.Code() != "INVALID_REQUEST" || len(a.Body) > 500 {
				t.Errorf("%s, %s: %d with %d bytes %.500s, want %d", at.path, what, a.Status, len(a.Body), a.Body, want)
			}
		}
		if after := state(); after != before {
			t.Fatalf("POST %s: a refused body changed the database or a view, from\n%s\nto\n%s", at.path, before, after)
		}
	}
	// POST keys and POST cancel read an empty body as {}. The calls below refuse an empty body.
	for path, token := range map[string]string{"/v1/deals": d.Key, d.Path("/commit"): d.Tokens[0], revealing.Path("/reveal"): revealing.Tokens[0]} {
		c.Refused(400, "INVALID_JSON", "POST", path, token, "")
	}
}

// A body is read as JSON whatever its Content-Type is.
func TestContentTypes(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	for _, kind := range []string{"", "application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=utf-16", "nonsense"} {
		c.Want(201, "POST", "/v1/deals", key, split(), "Content-Type", kind)
		c.Refused(400, "INVALID_JSON", "POST", "/v1/deals", key, "a=b", "Content-Type", kind)
	}
	c.Refused(400, "INVALID_JSON", "POST", "/v1/deals", key, "\x1f\x8b\x08\x00", "Content-Encoding", "gzip")
}

func TestMistypedPartyBodies(t *testing.T) {
	c := newClient(t)
	d, revealing := c.Create(split()), c.Committed(split(), e2e.Seal(t, e2e.AnnsValues).Commitment, e2e.Seal(t, e2e.BobsValues))
	for _, text := range []string{`{}`, `{"commitment":null}`, `{"commitment":7}`, `{"Commitment":"sha256:00"}`} {
		c.Refused(400, "INVALID_REQUEST", "POST", d.Path("/commit"), d.Tokens[0], text)
	}
	for _, text := range []string{
		`{}`, `{"salt":"x"}`, `{"input":null}`, `{"input":[]}`, `{"input":"{}"}`, `{"Input":{}}`, `{"input":{},"salt":7}`, `{"input":{},"salt":{}}`, `{"input":{},"salt":"` + strings.Repeat("é", 513) + `"}`,
	} {
		c.Refused(400, "INVALID_REQUEST", "POST", revealing.Path("/reveal"), revealing.Tokens[0], text)
	}
}

func TestBodyThatIsCutOff(t *testing.T) {
	c := newClient(t)
	d := c.Create(split())
	text := e2e.JsonText(t, e2e.Seal(t, e2e.AnnsValues).Act("commit"))
	a := sendRaw(t, c, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: fairpact\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", d.Path("/commit"), d.Tokens[0], len(text)+1, text))
	if a.Status != http.StatusBadRequest || a.Code() != "INVALID_JSON" {
		t.Errorf("a commit one byte too short: %d %s, want 400 INVALID_JSON", a.Status, a.Body)
	}
	if v := d.View(); v.State != "OPEN" {
		t.Errorf("the commitment was accepted: %+v", v)
	}
}

// algorithm_params and inputs have size limits of their own, exact to the byte. GET /v1/algorithms
// publishes the limits of inputs, because a party cannot change an input after the commit.
func TestBoundsWithinABody(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	c.Want(201, "POST", "/v1/deals", key, changed(split(), "more", make([]int, 32_000)))
	c.Refused(400, "INVALID_REQUEST", "POST", "/v1/deals", key, changed(split(), "more", make([]int, 1<<15)))
	params := func(size int) e2e.Body {
		return changed(split(), "algorithm_params", e2e.Body{"items": []string{"car"}, "note": strings.Repeat("x", size-len(`{"items":["car"],"note":""}`))})
	}
	c.Want(201, "POST", "/v1/deals", key, params(1<<20))
	c.Refused(400, "INVALID_PARAMS", "POST", "/v1/deals", key, params(1<<20+1))

	var catalogue struct{ Commitment string }
	c.Want(200, "GET", "/v1/algorithms", "", nil).Into(t, &catalogue)
	reveal := func(status int, b e2e.Body, input string) {
		t.Helper()
		d := c.Committed(b, sha([]byte(input)), e2e.Seal(t, e2e.Body{}))
		if a := c.Want(status, "POST", d.Path("/reveal"), d.Tokens[0], `{"input":`+input+`}`); status == 400 && a.Code() != "INVALID_INPUT" {
			t.Errorf("an input of %d bytes: %s, want INVALID_INPUT", len(input), a.Body)
		}
	}
	for _, row := range []struct {
		b     e2e.Body
		input string
		most  int
	}{
		{split(), `{"note":"%s","valuations":{}}`, 4<<10 + len(`"car""boat"`) + 2*18},
		{random(2, 1), `{"nonce":"","note":"%s"}`, 4 << 10},
		{shapley(), `{"accept":true,"note":"%s"}`, 4 << 10},
	} {
		reveal(200, row.b, fmt.Sprintf(row.input, strings.Repeat("x", row.most-len(row.input)+len("%s"))))
		reveal(400, row.b, fmt.Sprintf(row.input, strings.Repeat("x", row.most+1-len(row.input)+len("%s"))))
		if a, _ := algorithm.Lookup(row.b["algorithm"].(string)); !strings.Contains(catalogue.Commitment, a.ID+": "+cmp.Or(a.InputSize, fmt.Sprint(row.most))) {
			t.Errorf("the catalogue does not publish the limit of %s: %s", a.ID, catalogue.Commitment)
		}
	}
	// The body has 32 levels, the maximum.
	reveal(200, shapley(), `{"accept":true,"note":`+nested("[", "", "]", 30)+`}`)
}

func TestBodyLimit(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	creation := e2e.JsonText(t, split())
	padded := func(body string, size int) string {
		return body[:len(body)-1] + strings.Repeat(" ", size-len(body)) + "}"
	}
	for _, row := range []struct {
		path, token, body string
		limit, status     int
	}{
		{"/v1/deals", key, creation, bodyLimit, 201}, {"/v1/verify", "", "{}", verifyLimit, 400}, {"/v1/keys", "", "{}", smallBodyLimit, 201},
	} {
		c.Want(row.status, "POST", row.path, row.token, padded(row.body, row.limit))
		c.Refused(413, "BODY_TOO_LARGE", "POST", row.path, row.token, padded(row.body, row.limit+1))
	}
}
