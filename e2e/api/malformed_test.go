package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

func nested(open, inner, end string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}

// malformed are texts that are no JSON object within the rules of SPEC 8 and
// I-JSON (RFC 7493), whatever the call.
var malformed = map[string]string{
	"a blank": " ", "half a literal": "nul", "null": "null", "true": "true", "a number": "7", "a string": `"x"`, "an array": "[]", "an object in an array": "[{}]",
	"open": "{", "closed": "}", "half a name": `{"a`, "a name alone": `{"a"`, "no value": `{"a":}`, "no colon": `{"a" 1}`, "a comma too many": `{"a":1,}`, "a comma too few": `{"a":1 "b":2}`,
	"a bare name": `{a:1}`, "single quotes": `{'a':1}`, "a comment": `/* x */{}`, "two values": `{}{}`, "something after": `{}x`, "a leading zero": `{"a":01}`, "a plus": `{"a":+1}`,
	"a fraction": `{"a":1.5}`, "a whole fraction": `{"a":1.0}`, "an exponent": `{"a":1e2}`, "a large exponent": `{"a":1e999}`, "NaN": `{"a":NaN}`, "-Infinity": `{"a":-Infinity}`, "a hex number": `{"a":0x1}`,
	"2^53": `{"a":9007199254740992}`, "-2^53": `{"a":-9007199254740992}`, "10000 digits": `{"a":` + strings.Repeat("7", 10_000) + `}`, "a minus": `{"a":-}`,
	"a name twice": `{"a":1,"a":1}`, "a name twice, escaped": `{"a":1,"\u0061":1}`, "a name twice, deep": `{"a":[{"b":1,"b":2}]}`,
	"a high surrogate": `{"a":"\ud800"}`, "a low surrogate": `{"a":"\udc00"}`, "surrogates swapped": `{"a":"\udc00\ud800"}`, "a surrogate in a name": `{"\ud800":1}`,
	"an unknown escape": `{"a":"\x"}`, "half an escape": `{"a":"\u00`, "a raw line break": "{\"a\":\"\n\"}", "a raw NUL": "{\"a\":\"\x00\"}", "NUL between": "{\x00}", "no UTF-8": "{\"a\":\"\xff\"}",
	"an overlong NUL": "{\"a\":\"\xc0\x80\"}", "a surrogate in UTF-8": "{\"a\":\"\xed\xa0\x80\"}", "a byte order mark": "\ufeff{}", "UTF-16": "{\x00}\x00", "a form": "commitment=x&input=y", "a page": "<html></html>",
	"33 levels":          nested(`{"a":`, "1", "}", 33),
	"33 levels of array": `{"a":` + nested("[", "1", "]", 32) + "}",
	"a million levels":   nested("[", "", "]", 1_000_000), "a million levels, open": strings.Repeat(`{"a":`, 700_000), "a million brackets": strings.Repeat("[", 1_000_000),
	"131073 values":      `{"a":[1` + strings.Repeat(",1", 131_070) + "]}",
	"two million blanks": strings.Repeat(" ", 2_000_000), "a long name twice": `{"` + strings.Repeat("n", 500_000) + `":1,"` + strings.Repeat("n", 500_000) + `":1}`,
}

// Each of them is a 400 on every POST that reads a body, and changes nothing.
func TestMalformedBodies(t *testing.T) {
	c, w := surfaceClient(t), e2e.Database(t, e2e.Shared(t))
	d, s := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)), e2e.Seal(t, e2e.AnnsValues)
	revealing := c.Committed(e2e.SplitBody(time.Hour, 2*time.Hour), s.Commitment, e2e.Seal(t, e2e.BobsValues))
	count := func() string {
		return fmt.Sprint(w.Rows(), w.Records())
	}
	before := []string{count(), string(c.Want(200, "GET", d.Path(""), d.Key, nil).Body), string(c.Want(200, "GET", revealing.Path(""), revealing.Key, nil).Body)}
	for name, text := range malformed {
		for _, call := range []struct{ path, token string }{
			{"/v1/keys", ""}, {"/v1/deals", d.Key}, {d.Path("/commit"), d.Tokens[0]}, {d.Path("/cancel"), d.Key}, {revealing.Path("/reveal"), revealing.Tokens[0]},
		} {
			a := c.Do("POST", call.path, call.token, text, "Idempotency-Key", "malformed")
			large := call.path == "/v1/deals" || call.path == revealing.Path("/reveal")
			if !large && len(text) > 64<<10 {
				if a.Status != 413 {
					t.Errorf("%s to %s: %d %.300s", name, call.path, a.Status, a.Body)
				}
				continue
			}
			if a.Status != 400 || a.Code() != "INVALID_JSON" && a.Code() != "INVALID_REQUEST" {
				t.Errorf("%s to %s: %d %.300s", name, call.path, a.Status, a.Body)
			}
			if len(a.Body) > 400 {
				t.Errorf("%s: an error of %d bytes: %.100s…", name, len(a.Body), a.Body)
			}
		}
		c.Refused(409, "WRONG_ALGORITHM", "POST", d.Path("/entropy"), d.Key, text)
	}
	after := []string{count(), string(c.Want(200, "GET", d.Path(""), d.Key, nil).Body), string(c.Want(200, "GET", revealing.Path(""), revealing.Key, nil).Body)}
	for i := range before {
		if before[i] != after[i] {
			t.Errorf("what was refused changed something:\n%s\n%s", before[i], after[i])
		}
	}
	// An empty body is an object for keys and cancel alone.
	for path, token := range map[string]string{"/v1/deals": d.Key, d.Path("/commit"): d.Tokens[0], revealing.Path("/reveal"): revealing.Tokens[0]} {
		c.Refused(400, "INVALID_JSON", "POST", path, token, "")
	}
	c.Want(200, "POST", revealing.Path("/reveal"), revealing.Tokens[0], s.Act("reveal"), "Idempotency-Key", "malformed")
	c.Want(200, "POST", d.Path("/cancel"), d.Key, "", "Idempotency-Key", "malformed")
}

// 32 levels are allowed and 33 are not; the largest integers are, and -0 is 0.
func TestEdgesOfJSON(t *testing.T) {
	c := surfaceClient(t)
	for text, status := range map[string]int{
		nested(`{"a":`, "1", "}", 32):                     201,
		`{"a":` + nested("[", "", "]", 31) + "}":          201,
		nested(`{"a":`, "1", "}", 33):                     400,
		`{"a":[9007199254740991,-9007199254740991,-0,0]}`: 201,
		`{"":1," ":2,"\u0000":3,"é":4,"e\u0301":5}`:       201,
		"\r\n\t {\"a\":\"\\ud83e\\udd86🦆\\/\"}\r\n\t ":    201,
	} {
		c.Want(status, "POST", "/v1/keys", "", text)
	}
}

// Bodies are JSON whatever the Content-Type says.
func TestContentTypes(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	for _, kind := range []string{"", "application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=utf-16", "nonsense"} {
		c.Want(201, "POST", "/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour), "Content-Type", kind)
		c.Refused(400, "INVALID_JSON", "POST", "/v1/deals", key, "a=b", "Content-Type", kind)
	}
	c.Refused(400, "INVALID_JSON", "POST", "/v1/deals", key, "\x1f\x8b\x08\x00", "Content-Encoding", "gzip")
}

// Members of the other types and sizes, on the calls of a party.
func TestMistypedPartyBodies(t *testing.T) {
	c := surfaceClient(t)
	s := e2e.Seal(t, e2e.AnnsValues)
	d := c.Committed(e2e.SplitBody(time.Hour, 2*time.Hour), s.Commitment, e2e.Seal(t, e2e.BobsValues))
	before := c.Want(200, "GET", d.Path(""), d.Key, nil)
	for _, text := range []string{
		`{}`, `{"salt":"x"}`, `{"input":null}`, `{"input":[]}`, `{"input":"{}"}`, `{"input":7}`, `{"input":true}`, `{"Input":{}}`,
		`{"input":{},"salt":7}`, `{"input":{},"salt":{}}`, `{"input":{},"salt":[]}`, `{"input":{},"salt":false}`, `{"input":{},"salt":"` + strings.Repeat("x", 1025) + `"}`, `{"input":{},"salt":"` + strings.Repeat("é", 513) + `"}`,
	} {
		c.Refused(400, "INVALID_REQUEST", "POST", d.Path("/reveal"), d.Tokens[0], text)
	}
	if after := c.Want(200, "GET", d.Path(""), d.Key, nil); string(after.Body) != string(before.Body) {
		t.Errorf("the view has changed:\n%s\n%s", before.Body, after.Body)
	}
	c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], s.Act("reveal"))
}

// A body that ends before its Content-Length has no effect.
func TestBodyThatIsCutOff(t *testing.T) {
	c := surfaceClient(t)
	d, s := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)), e2e.Seal(t, e2e.AnnsValues)
	text := `{"commitment":"` + s.Commitment + `"}`
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.Base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: fairpact\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", d.Path("/commit"), d.Tokens[0], len(text)+1, text)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 400 || !strings.Contains(string(said), "INVALID_JSON: ") {
		t.Errorf("%d %s: %v", resp.StatusCode, said, err)
	}
	if v := d.View(); v.State != "OPEN" {
		t.Errorf("a commitment cut off was taken: %+v", v)
	}
}

// What is bounded beside the body: values, params, and inputs, whose bounds the
// catalogue publishes because a commitment cannot be corrected.
func TestBoundsWithinABody(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	c.Want(201, "POST", "/v1/deals", key, changed(b, "more", make([]int, 131_000)))
	params := func(size int) e2e.Body {
		return e2e.Body{"items": []string{"car"}, "note": strings.Repeat("x", size-len(`{"items":["car"],"note":""}`))}
	}
	c.Want(201, "POST", "/v1/deals", key, changed(b, "algorithm_params", params(1<<20)))
	c.Refused(400, "INVALID_PARAMS", "POST", "/v1/deals", key, changed(b, "algorithm_params", params(1<<20+1)))

	for _, row := range []struct {
		b     e2e.Body
		input string
		most  int
	}{
		{e2e.SplitBody(time.Hour, 2*time.Hour), `{"note":"%s","valuations":{}}`, 512 << 10},
		{e2e.RandomBody(2, 1, time.Hour, 2*time.Hour), `{"nonce":"","note":"%s"}`, 4 << 10},
		{e2e.ShapleyBody(time.Hour, 2*time.Hour), `{"accept":true,"note":"%s"}`, 4 << 10},
	} {
		for over := range 2 {
			input := fmt.Sprintf(row.input, strings.Repeat("x", row.most+over-len(row.input)+len("%s")))
			d := c.Committed(row.b, sha([]byte(input)), e2e.Seal(t, e2e.Body{}))
			sent := `{"input":` + input + `}`
			if over == 0 {
				c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], sent)
			} else {
				c.Refused(400, "INVALID_INPUT", "POST", d.Path("/reveal"), d.Tokens[0], sent)
			}
		}
		var catalogue struct{ Commitment string }
		c.Want(200, "GET", "/v1/algorithms", "", nil).Into(t, &catalogue)
		if !strings.Contains(catalogue.Commitment, fmt.Sprint(row.most)) {
			t.Errorf("the catalogue does not say %d: %s", row.most, catalogue.Commitment)
		}
	}
	deepest := `{"accept":true,"note":` + nested("[", "", "]", 30) + `}`
	d := c.Committed(e2e.ShapleyBody(time.Hour, 2*time.Hour), sha([]byte(deepest)), e2e.Seal(t, e2e.Body{}))
	c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], `{"input":`+deepest+`}`)
}
