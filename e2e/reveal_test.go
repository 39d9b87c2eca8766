package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
)

// committed is a deal of two that is REVEALING: party 0 to commitment, party 1
// to bob's values.
func (c *client) committed(b body, commitment string, other sealed) *dealt {
	c.t.Helper()
	d := c.create(b)
	c.want(200, "POST", d.path("/commit"), d.Tokens[0], body{"commitment": commitment})
	d.commit(1, other)
	return d
}

func sha(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// SPEC 2.6: SHA-256 of the RFC 8785 form of the input and the salt bytes: the
// salt's UTF-8 bytes, or those that its hex spells, whichever was committed to.
// input_root is made of the reading that matched.
func TestReadingsOfASalt(t *testing.T) {
	c := surfaceClient(t)
	canonical := []byte(`{"valuations":{"boat":30,"car":70}}`)
	input := body{"valuations": body{"car": 70, "boat": 30}}
	raw := []byte{0x6b, 0xff, 0x00, 0x1f}
	other := seal(t, bobsValues)
	for name, row := range map[string]struct {
		salt  any
		bytes []byte
	}{
		"text":                    {"pepper é 🦆", []byte("pepper é 🦆")},
		"U+0000":                  {"a\x00b", []byte("a\x00b")},
		"hex as text":             {"6bff001f", []byte("6bff001f")},
		"hex as bytes":            {"6bff001f", raw},
		"hex in capitals":         {"6BFF001F", raw},
		"hex in both cases":       {"6bFF001f", raw},
		"an odd number of digits": {"6bff0", []byte("6bff0")},
		"none":                    {"", nil},
		"null":                    {nil, nil},
		"1024 bytes":              {strings.Repeat("é", 512), []byte(strings.Repeat("é", 512))},
	} {
		d := c.committed(splitBody(time.Hour, 2*time.Hour), sha(canonical, row.bytes), other)
		c.want(200, "POST", d.path("/reveal"), d.Tokens[0], body{"input": input, "salt": row.salt})
		d.reveal(1, other)
		otherText, err := canon.Marshal(other.Input)
		if err != nil {
			t.Fatal(err)
		}
		left, right := hashed(0, canonical, row.bytes), hashed(0, otherText, []byte(other.Salt))
		var cert struct {
			InputRoot string `json:"input_root"`
		}
		answer{body: d.certified(patience)}.into(t, &cert)
		if want := "sha256:" + hex.EncodeToString(hashed(1, left, right)); cert.InputRoot != want {
			t.Errorf("%s: input_root %s, want %s", name, cert.InputRoot, want)
		}
	}
}

// Whatever does not open the commitment is refused, changes nothing, and what
// does is still taken after it.
func TestCommitmentMismatch(t *testing.T) {
	c := surfaceClient(t)
	s, other := seal(t, annsValues), seal(t, bobsValues)
	d := c.committed(splitBody(time.Hour, 2*time.Hour), s.Commitment, other)
	before := d.view()
	for name, sent := range map[string]any{
		"another salt":           body{"input": s.Input, "salt": s.Salt + "0"},
		"no salt":                body{"input": s.Input},
		"the salt in capitals":   body{"input": s.Input, "salt": strings.ToUpper(s.Salt) + "A"},
		"another input":          body{"input": bobsValues, "salt": s.Salt},
		"an empty input":         body{"input": body{}, "salt": s.Salt},
		"a member more":          body{"input": body{"valuations": s.Input["valuations"], "note": ""}, "salt": s.Salt},
		"an item more":           body{"input": body{"valuations": body{"car": 70, "boat": 30, "x": 0}}, "salt": s.Salt},
		"the other's":            other.act("reveal"),
		"the salt in the input":  `{"input":{"valuations":{"car":70,"boat":30}},"Salt":"` + s.Salt + `"}`,
		"another spelling of it": `{"input":{"valuations":{"car":70,"boat":30}},"salt":"` + s.Salt + `\u0000"}`,
	} {
		a := c.refused(400, "COMMITMENT_MISMATCH", "POST", d.path("/reveal"), d.Tokens[0], sent)
		if strings.Contains(a.errorText(), s.Salt) || !strings.Contains(a.errorText(), s.Commitment) {
			t.Errorf("%s: %s", name, a.errorText())
		}
	}
	if after := d.view(); after.State != before.State || after.Parties[0].Revealed {
		t.Fatalf("%+v", after)
	}
	// The same input, written otherwise.
	a := c.want(200, "POST", d.path("/reveal"), d.Tokens[0], " {\"salt\" : \""+s.Salt+"\",\n \"input\":{ \"v\\u0061luations\":{\"car\":70,\"bo\\u0061t\":30}}, \"extra\":null}\t")
	var r struct {
		State    string
		Party    *int
		Revealed bool
		Result   any
	}
	a.into(t, &r)
	if r.State != "REVEALING" || r.Party == nil || *r.Party != 0 || !r.Revealed || r.Result != nil {
		t.Errorf("%s", a.body)
	}
	d.reveal(1, other)
	d.certified(patience)
}

// The form of a commitment is one; anything else is refused.
func TestFormOfACommitment(t *testing.T) {
	c := surfaceClient(t)
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	good := seal(t, annsValues).Commitment
	for _, wrong := range []string{
		"", "sha256:", good[7:], good[:70], good + "0", good + " ", " " + good, strings.ToUpper(good), "SHA256:" + good[7:], good[:7] + strings.ToUpper(good[7:]),
		"sha512:" + good[7:], "sha256-" + good[7:], good[:70] + "g", good[:70] + "é", "sha256:0x" + good[9:],
	} {
		a := c.refused(400, "INVALID_COMMITMENT", "POST", d.path("/commit"), d.Tokens[0], body{"commitment": wrong})
		if len(wrong) > 40 && strings.Contains(a.errorText(), wrong) {
			t.Errorf("the commitment is echoed: %s", a.errorText())
		}
	}
	for _, wrong := range []string{`{}`, `{"commitment":null}`, `{"commitment":7}`, `{"commitment":["` + good + `"]}`, `{"Commitment":"` + good + `"}`} {
		c.refused(400, "INVALID_REQUEST", "POST", d.path("/commit"), d.Tokens[0], wrong)
	}
	// Two parties may hold the same one.
	for party, state := range []string{"COMMITTING", "REVEALING"} {
		var r struct {
			DealID    string `json:"deal_id"`
			State     string
			Party     *int
			Committed bool
			Next      string
		}
		c.want(200, "POST", d.path("/commit"), d.Tokens[party], body{"commitment": good, "more": 1}).into(t, &r)
		if r.DealID != d.ID || r.State != state || r.Party == nil || *r.Party != party || !r.Committed || !strings.Contains(r.Next, "/reveal") {
			t.Errorf("%+v", r)
		}
	}
}

// What is sealed is forgiving: an input that has one meaning is taken.
func TestForgivingInputs(t *testing.T) {
	c := surfaceClient(t)
	for name, row := range map[string]struct {
		b             body
		input, result string // result: a part of it
	}{
		"an item left out":     {splitBody(time.Hour, 2*time.Hour), `{"valuations":{"car":1}}`, `{"item":"boat","share":"1"}`},
		"nothing valued":       {splitBody(time.Hour, 2*time.Hour), `{"valuations":{}}`, `"value_ppb":0`},
		"all zeros":            {splitBody(time.Hour, 2*time.Hour), `{"valuations":{"boat":0,"car":0}}`, `"value_ppb":0`},
		"minus zero":           {splitBody(time.Hour, 2*time.Hour), `{"valuations":{"boat":-0,"car":7}}`, `{"item":"car"`},
		"an unknown member":    {splitBody(time.Hour, 2*time.Hour), `{"note":[{"deep":null}],"valuations":{"car":1}}`, `adjusted_winner`},
		"the largest values":   {splitBody(time.Hour, 2*time.Hour), `{"valuations":{"boat":9007199254740991,"car":9007199254740991}}`, `value_ppb`},
		"accepting and a note": {shapleyBody(time.Hour, 2*time.Hour), `{"accept":true,"note":"é"}`, `"payout":90`},
	} {
		tree, err := canon.Parse([]byte(row.input))
		if err != nil {
			t.Fatal(err)
		}
		other := seal(t, bobsValues)
		if row.b["algorithm"] == "shapley.v1" {
			other = seal(t, body{"accept": true})
		}
		d := c.committed(row.b, sha(canon.Encode(tree)), other)
		c.want(200, "POST", d.path("/reveal"), d.Tokens[0], `{"input":`+row.input+`}`)
		d.reveal(1, other)
		if v := d.view(); v.State != "COMPUTED" || !strings.Contains(string(v.Result), row.result) {
			t.Errorf("%s: %s %s", name, v.State, v.Result)
		}
	}
}

// An input that opens its commitment and does not fit the algorithm is refused,
// without a word of what it holds, and the deal goes on.
func TestInputsThatDoNotFit(t *testing.T) {
	c := surfaceClient(t)
	random := func() body { return randomBody(2, 1000, time.Hour, 2*time.Hour) }
	split := func() body { return splitBody(time.Hour, 2*time.Hour) }
	shapley := func() body { return shapleyBody(time.Hour, 2*time.Hour) }
	for name, row := range map[string]struct {
		b     func() body
		input string
	}{
		"no valuations":           {split, `{"secret":4711}`},
		"valuations of a type":    {split, `{"valuations":[4711]}`},
		"null valuations":         {split, `{"valuations":null}`},
		"an unknown item":         {split, `{"valuations":{"secret4711":1}}`},
		"a negative value":        {split, `{"valuations":{"car":-4711}}`},
		"a value of another type": {split, `{"valuations":{"car":"4711"}}`},
		"no nonce":                {random, `{"secret":"4711"}`},
		"a nonce of a type":       {random, `{"nonce":4711}`},
		"a nonce with a prefix":   {random, `{"nonce":"0x4711"}`},
		"a nonce with a blank":    {random, `{"nonce":"4711 "}`},
		"a nonce that is no hex":  {random, `{"nonce":"4711g"}`},
		"1025 digits":             {random, `{"nonce":"` + strings.Repeat("4711", 256) + `0"}`},
		"no accept":               {shapley, `{"secret":4711}`},
		"an accept of a type":     {shapley, `{"accept":"true4711"}`},
		"a null accept":           {shapley, `{"accept":null,"secret":4711}`},
	} {
		tree, err := canon.Parse([]byte(row.input))
		if err != nil {
			t.Fatal(err)
		}
		d := c.committed(row.b(), sha(canon.Encode(tree)), seal(t, bobsValues))
		a := c.refused(400, "INVALID_INPUT", "POST", d.path("/reveal"), d.Tokens[0], `{"input":`+row.input+`}`)
		if strings.Contains(a.errorText(), "4711") || !strings.Contains(a.errorText(), "input") {
			t.Errorf("%s: %s", name, a.errorText())
		}
		if v := d.view(); v.State != "REVEALING" || v.Parties[0].Revealed {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// SPEC 3: any rejection makes the deal VOID at once and names the rejector,
// whoever has yet to reveal.
func TestRejection(t *testing.T) {
	c := surfaceClient(t)
	b := shapleyBody(time.Hour, 2*time.Hour)
	b["party_labels"] = []string{"ann", "bob", "cy"}
	for name, row := range map[string]struct {
		before, rejector int
		root             bool
	}{
		"first":        {0, 2, false},
		"in the midst": {1, 1, false},
		"last":         {2, 2, true},
	} {
		x := open(c, b, 0, 0, body{"accept": true}, body{"accept": true}, body{"accept": true})
		x.inputs[row.rejector] = seal(t, body{"accept": false})
		for p, s := range x.inputs {
			x.deal.commit(p, s)
		}
		for p := range row.before {
			x.deal.reveal(p, x.inputs[p])
		}
		var r struct {
			State  string
			Result any
		}
		d := x.deal
		d.reveal(row.rejector, x.inputs[row.rejector]).into(t, &r)
		if r.State != "VOID" || r.Result != nil {
			t.Errorf("%s: %+v", name, r)
		}
		v := d.view()
		if v.State != "VOID" || len(v.VoidFlakers) != 1 || v.VoidFlakers[0] != row.rejector || string(v.Result) != "null" || v.ComputedAt != nil || v.CertificateID == nil || (v.RevealsClosedAt != nil) != row.root {
			t.Errorf("%s: %+v", name, v)
		}
		var cert struct {
			Outcome     string
			VoidFlakers []int   `json:"void_flakers"`
			InputRoot   *string `json:"input_root"`
		}
		answer{body: d.certified(0)}.into(t, &cert)
		if cert.Outcome != "VOID" || len(cert.VoidFlakers) != 1 || cert.VoidFlakers[0] != row.rejector || (cert.InputRoot != nil) != row.root {
			t.Errorf("%s: %+v", name, cert)
		}
		for p := range d.Tokens {
			c.refused(409, "DEAL_ENDED", "POST", d.path("/reveal"), d.Tokens[p], x.inputs[p].act("reveal"))
		}
	}
}
