package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

const (
	bodyLimit      = 4 << 20
	smallBodyLimit = 64 << 10 // of the calls whose bodies are short
	verifyLimit    = 8 << 20
)

func nested(open, inner, end string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}

// malformed lists bodies that are not a JSON object within the rules of SPEC 8 and
// I-JSON (RFC 7493). internal/canon tests the parser. These are the kinds that differ
// on the way to it: the top-level type, the size, the depth, the encoding.
var malformed = map[string]string{
	"a blank": " ", "null": "null", "an array": "[]", "a string": `"x"`, "no value": `{"a":}`, "two values": `{}{}`, "a fraction": `{"a":1.5}`, "2^53": `{"a":9007199254740992}`,
	"a name twice": `{"a":1,"\u0061":1}`, "a lone surrogate": `{"a":"\ud800"}`, "not UTF-8": "{\"a\":\"\xff\"}", "a byte order mark": "\ufeff{}", "UTF-16": "{\x00}\x00",
	"a form": "commitment=x&input=y", "a page": "<html></html>", "33 levels": nested(`{"a":`, "1", "}", 33), "a million levels": nested("[", "", "]", 1_000_000),
	"131073 values": `{"a":[1` + strings.Repeat(",1", 131_070) + "]}", "two million blanks": strings.Repeat(" ", 2_000_000),
	"a long name twice": `{"` + strings.Repeat("n", 500_000) + `":1,"` + strings.Repeat("n", 500_000) + `":1}`,
}

// target is a call and a valid body of it. deal is the deal that it changes, or nil.
type target struct {
	deal              *e2e.Dealt
	path, token, body string
	limit             int
}

// Malformed bodies are refused by every POST. Bodies mutated at random are refused
// or, if still valid, accepted, and never fail the service. A refused body
// changes nothing.
func TestMalformedAndMutatedBodies(t *testing.T) {
	const rounds, seed = 250, 7
	c, w := newClient(t), e2e.Database(t, e2e.Shared(t))
	key := c.Key()
	reveal := func(b, mine, other e2e.Body) func() target {
		return func() target {
			s := e2e.Seal(t, mine)
			d := c.Committed(b, s.Commitment, e2e.Seal(t, other))
			return target{d, d.Path("/reveal"), d.Tokens[0], e2e.JsonText(t, s.Act("reveal")), bodyLimit}
		}
	}
	ofNewDeal := func(action, body string) func() target {
		return func() target {
			d := c.CreateWith(key, split())
			token := key
			if action == "/commit" {
				token = d.Tokens[0]
			}
			return target{d, d.Path(action), token, body, smallBodyLimit}
		}
	}
	targets := map[string]func() target{
		"keys":    func() target { return target{path: "/v1/keys", body: `{"note":{"of":[1,"x"]}}`, limit: smallBodyLimit} },
		"commit":  ofNewDeal("/commit", e2e.JsonText(t, e2e.Seal(t, e2e.AnnsValues).Act("commit"))),
		"cancel":  ofNewDeal("/cancel", `{"reason":["none",{"of":"yours"}]}`),
		"entropy": ofNewDeal("/entropy", `{"value":"00"}`),
		"split":   reveal(split(), e2e.AnnsValues, e2e.BobsValues),
		"accept":  reveal(shapley(), e2e.Body{"accept": true}, e2e.Body{"accept": true}),
		"nonce":   reveal(random(2, e2e.FarRound(t)), e2e.Body{"nonce": "00ff"}, e2e.Body{"nonce": ""}),
	}
	for i, b := range []e2e.Body{split(), shapley(), random(3, e2e.FarRound(t)), e2e.Retained(split(), "open", "purge")} {
		body := e2e.JsonText(t, b)
		targets[fmt.Sprint("create ", i)] = func() target { return target{path: "/v1/deals", token: key, body: body, limit: bodyLimit} }
	}
	for name, renewed := range targets {
		t.Run(name, func(t *testing.T) {
			c, w := c.In(t), e2e.Witness{T: t, Pool: w.Pool}
			at := renewed()
			state := func() string {
				view := ""
				if at.deal != nil {
					view = string(c.Want(200, "GET", at.deal.Path(""), at.deal.Key, nil).Body)
				}
				return fmt.Sprint(w.Rows(), w.Records(), view)
			}
			before := state()
			send := func(what, body string, header ...string) e2e.Answer {
				a := c.Do("POST", at.path, at.token, body, header...)
				if a.Status >= 500 || a.Status < 200 || a.Status >= 300 && a.Status < 400 {
					t.Fatalf("%s, %.300q: %d %s", what, body, a.Status, a.Body)
				}
				if a.Status < 300 {
					at = renewed()
					before = state()
				} else if after := state(); after != before {
					t.Fatalf("%s, %.300q was refused with %s and changed the state:\n%s\n%s", what, body, a.Body, before, after)
				}
				return a
			}
			for what, body := range malformed {
				want := 400
				if name == "entropy" { // ignores its body
					want = 409
				} else if len(body) > at.limit {
					want = 413
				}
				if a := send(what, body, "Idempotency-Key", "malformed"); a.Status != want || want == 400 && a.Code() != "INVALID_JSON" && a.Code() != "INVALID_REQUEST" || len(a.Body) > 500 {
					t.Errorf("%s: %d with %d bytes %.500s, want %d", what, a.Status, len(a.Body), a.Body, want)
				}
			}
			m, refused := mutator{rand.New(rand.NewPCG(seed, uint64(len(name))))}, 0
			for range rounds {
				if a := send("mutated", m.mutated(at.body)); a.Status >= 400 {
					refused++
				}
			}
			if t.Logf("%d of %d refused", refused, rounds); refused < rounds/3 {
				t.Errorf("of %d mutated bodies only %d were refused: mutate them more", rounds, refused)
			}
		})
	}
	// An empty body is an empty object for keys and cancel only.
	for _, name := range []string{"create 0", "commit", "split"} {
		at := targets[name]()
		c.Refused(400, "INVALID_JSON", "POST", at.path, at.token, "")
	}
}

// mutator makes broken and odd bodies out of valid ones, the same for the same seed.
type mutator struct{ *rand.Rand }

// scraps lists the texts that a mutation inserts.
var scraps = []string{
	"null", "true", "0", "-0", "-1", "1.5", "1e3", "9007199254740991", "9007199254740992", "-9007199254740992", `""`, `"x"`, `"\u0000"`, `"\ud800"`, `"é"`, "[]", "{}", "[null]", `{"a":{}}`,
	"{", "}", "[", "]", ",", ":", `"`, `\`, "\x00", "\xff", " ", "\n", "\ufeff", `"split.v1"`, `"random.v1"`, `"shapley.v1"`, `"sha256:"`, `"__proto__"`, `{"$ref":"#"}`, `"' OR 1=1 --"`,
}

var jsonToken = regexp.MustCompile(`"(\\.|[^"\\])*"|[^\s"{}\[\],:]+|[{}\[\],:]`)

// mutated returns a body with one to three changes. Half of the changes replace a
// whole token, so that the result is often JSON with a value of another type.
func (m mutator) mutated(body string) string {
	for range 1 + m.IntN(3) {
		i := m.IntN(len(body) + 1)
		j := i + m.IntN(min(len(body)-i, 40)+1)
		if tokens := jsonToken.FindAllStringIndex(body, -1); len(tokens) > 0 && m.IntN(2) == 0 {
			span := tokens[m.IntN(len(tokens))]
			i, j = span[0], span[1]
		}
		switch m.IntN(6) {
		case 0:
			body = body[:i] + body[j:]
		case 1:
			body = body[:j] + body[i:] // doubled
		case 2:
			if i < len(body) {
				body = body[:i] + string([]byte{body[i] ^ byte(1<<m.IntN(8))}) + body[i+1:]
			}
		case 3:
			body = body[:i] + nested("[", "", "]", 1+m.IntN(60)) + body[j:]
		default:
			body = body[:i] + scraps[m.IntN(len(scraps))] + body[j:]
		}
	}
	return body
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

// Members of a wrong type or size are refused in the calls of a party.
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

// A body that ends before its Content-Length is refused and changes nothing.
func TestBodyThatIsCutOff(t *testing.T) {
	c := newClient(t)
	d := c.Create(split())
	text := e2e.JsonText(t, e2e.Seal(t, e2e.AnnsValues).Act("commit"))
	a := sendRaw(t, c, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: fairpact\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", d.Path("/commit"), d.Tokens[0], len(text)+1, text))
	if a.Status != http.StatusBadRequest || a.Code() != "INVALID_JSON" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if v := d.View(); v.State != "OPEN" {
		t.Errorf("the commitment was accepted: %+v", v)
	}
}

// Values, params and inputs have bounds of their own, exact to the byte. The catalogue
// publishes those of the inputs, because a commitment cannot be corrected.
func TestBoundsWithinABody(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	c.Want(201, "POST", "/v1/deals", key, changed(split(), "more", make([]int, 131_000)))
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
			t.Errorf("an input of %d bytes: %s", len(input), a.Body)
		}
	}
	for _, row := range []struct {
		b     e2e.Body
		input string
		most  int
	}{
		{split(), `{"note":"%s","valuations":{}}`, 512 << 10},
		{random(2, 1), `{"nonce":"","note":"%s"}`, 4 << 10},
		{shapley(), `{"accept":true,"note":"%s"}`, 4 << 10},
	} {
		reveal(200, row.b, fmt.Sprintf(row.input, strings.Repeat("x", row.most-len(row.input)+len("%s"))))
		reveal(400, row.b, fmt.Sprintf(row.input, strings.Repeat("x", row.most+1-len(row.input)+len("%s"))))
		if !strings.Contains(catalogue.Commitment, fmt.Sprint(row.most)) {
			t.Errorf("the catalogue does not publish %d: %s", row.most, catalogue.Commitment)
		}
	}
	// 32 levels in all, the most that is allowed.
	reveal(200, shapley(), `{"accept":true,"note":`+nested("[", "", "]", 30)+`}`)
}

// The limits of whole bodies are exact to the byte.
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
