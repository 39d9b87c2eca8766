package api

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
)

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
	input := e2e.Body{"valuations": e2e.Body{"car": 70, "boat": 30}}
	raw := []byte{0x6b, 0xff, 0x00, 0x1f}
	other := e2e.Seal(t, e2e.BobsValues)
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
		d := c.Committed(e2e.SplitBody(time.Hour, 2*time.Hour), sha(canonical, row.bytes), other)
		c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], e2e.Body{"input": input, "salt": row.salt})
		d.Reveal(1, other)
		otherText, err := canon.Marshal(other.Input)
		if err != nil {
			t.Fatal(err)
		}
		left, right := e2e.Hashed(0, canonical, row.bytes), e2e.Hashed(0, otherText, []byte(other.Salt))
		var cert struct {
			InputRoot string `json:"input_root"`
		}
		e2e.Answer{Body: d.Certified(e2e.Patience)}.Into(t, &cert)
		if want := "sha256:" + hex.EncodeToString(e2e.Hashed(1, left, right)); cert.InputRoot != want {
			t.Errorf("%s: input_root %s, want %s", name, cert.InputRoot, want)
		}
	}
}

// Whatever does not open the commitment is refused, changes nothing, and what
// does is still taken after it.
func TestCommitmentMismatch(t *testing.T) {
	c := surfaceClient(t)
	s, other := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	d := c.Committed(e2e.SplitBody(time.Hour, 2*time.Hour), s.Commitment, other)
	before := d.View()
	for name, sent := range map[string]any{
		"another salt":           e2e.Body{"input": s.Input, "salt": s.Salt + "0"},
		"no salt":                e2e.Body{"input": s.Input},
		"the salt in capitals":   e2e.Body{"input": s.Input, "salt": strings.ToUpper(s.Salt) + "A"},
		"another input":          e2e.Body{"input": e2e.BobsValues, "salt": s.Salt},
		"an empty input":         e2e.Body{"input": e2e.Body{}, "salt": s.Salt},
		"a member more":          e2e.Body{"input": e2e.Body{"valuations": s.Input["valuations"], "note": ""}, "salt": s.Salt},
		"an item more":           e2e.Body{"input": e2e.Body{"valuations": e2e.Body{"car": 70, "boat": 30, "x": 0}}, "salt": s.Salt},
		"the other's":            other.Act("reveal"),
		"the salt in the input":  `{"input":{"valuations":{"car":70,"boat":30}},"Salt":"` + s.Salt + `"}`,
		"another spelling of it": `{"input":{"valuations":{"car":70,"boat":30}},"salt":"` + s.Salt + `\u0000"}`,
	} {
		a := c.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], sent)
		if strings.Contains(a.ErrorText(), s.Salt) || !strings.Contains(a.ErrorText(), s.Commitment) {
			t.Errorf("%s: %s", name, a.ErrorText())
		}
	}
	if after := d.View(); after.State != before.State || after.Parties[0].Revealed {
		t.Fatalf("%+v", after)
	}
	// The same input, written otherwise.
	a := c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], " {\"salt\" : \""+s.Salt+"\",\n \"input\":{ \"v\\u0061luations\":{\"car\":70,\"bo\\u0061t\":30}}, \"extra\":null}\t")
	var r struct {
		State    string
		Party    *int
		Revealed bool
		Result   any
	}
	a.Into(t, &r)
	if r.State != "REVEALING" || r.Party == nil || *r.Party != 0 || !r.Revealed || r.Result != nil {
		t.Errorf("%s", a.Body)
	}
	d.Reveal(1, other)
	d.Certified(e2e.Patience)
}

// The form of a commitment is one; anything else is refused.
func TestFormOfACommitment(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	good := e2e.Seal(t, e2e.AnnsValues).Commitment
	for _, wrong := range []string{
		"", "sha256:", good[7:], good[:70], good + "0", good + " ", " " + good, strings.ToUpper(good), "SHA256:" + good[7:], good[:7] + strings.ToUpper(good[7:]),
		"sha512:" + good[7:], "sha256-" + good[7:], good[:70] + "g", good[:70] + "é", "sha256:0x" + good[9:],
	} {
		a := c.Refused(400, "INVALID_COMMITMENT", "POST", d.Path("/commit"), d.Tokens[0], e2e.Body{"commitment": wrong})
		if len(wrong) > 40 && strings.Contains(a.ErrorText(), wrong) {
			t.Errorf("the commitment is echoed: %s", a.ErrorText())
		}
	}
	for _, wrong := range []string{`{}`, `{"commitment":null}`, `{"commitment":7}`, `{"commitment":["` + good + `"]}`, `{"Commitment":"` + good + `"}`} {
		c.Refused(400, "INVALID_REQUEST", "POST", d.Path("/commit"), d.Tokens[0], wrong)
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
		c.Want(200, "POST", d.Path("/commit"), d.Tokens[party], e2e.Body{"commitment": good, "more": 1}).Into(t, &r)
		if r.DealID != d.ID || r.State != state || r.Party == nil || *r.Party != party || !r.Committed || !strings.Contains(r.Next, "/reveal") {
			t.Errorf("%+v", r)
		}
	}
}

// What is sealed is forgiving: an input that has one meaning is taken.
func TestForgivingInputs(t *testing.T) {
	c := surfaceClient(t)
	for name, row := range map[string]struct {
		b             e2e.Body
		input, result string // result: a part of it
	}{
		"an item left out":     {e2e.SplitBody(time.Hour, 2*time.Hour), `{"valuations":{"car":1}}`, `{"item":"boat","share":"1"}`},
		"nothing valued":       {e2e.SplitBody(time.Hour, 2*time.Hour), `{"valuations":{}}`, `"value_ppb":0`},
		"all zeros":            {e2e.SplitBody(time.Hour, 2*time.Hour), `{"valuations":{"boat":0,"car":0}}`, `"value_ppb":0`},
		"minus zero":           {e2e.SplitBody(time.Hour, 2*time.Hour), `{"valuations":{"boat":-0,"car":7}}`, `{"item":"car"`},
		"an unknown member":    {e2e.SplitBody(time.Hour, 2*time.Hour), `{"note":[{"deep":null}],"valuations":{"car":1}}`, `adjusted_winner`},
		"the largest values":   {e2e.SplitBody(time.Hour, 2*time.Hour), `{"valuations":{"boat":9007199254740991,"car":9007199254740991}}`, `value_ppb`},
		"accepting and a note": {e2e.ShapleyBody(time.Hour, 2*time.Hour), `{"accept":true,"note":"é"}`, `"payout":90`},
	} {
		tree, err := canon.Parse([]byte(row.input))
		if err != nil {
			t.Fatal(err)
		}
		other := e2e.Seal(t, e2e.BobsValues)
		if row.b["algorithm"] == "shapley.v1" {
			other = e2e.Seal(t, e2e.Body{"accept": true})
		}
		d := c.Committed(row.b, sha(canon.Encode(tree)), other)
		c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], `{"input":`+row.input+`}`)
		d.Reveal(1, other)
		if v := d.View(); v.State != "COMPUTED" || !strings.Contains(string(v.Result), row.result) {
			t.Errorf("%s: %s %s", name, v.State, v.Result)
		}
	}
}

// An input that opens its commitment and does not fit the algorithm is refused,
// without a word of what it holds, and the deal goes on.
func TestInputsThatDoNotFit(t *testing.T) {
	c := surfaceClient(t)
	random := func() e2e.Body { return e2e.RandomBody(2, 1000, time.Hour, 2*time.Hour) }
	split := func() e2e.Body { return e2e.SplitBody(time.Hour, 2*time.Hour) }
	shapley := func() e2e.Body { return e2e.ShapleyBody(time.Hour, 2*time.Hour) }
	for name, row := range map[string]struct {
		b     func() e2e.Body
		input string
	}{
		"no valuations":           {split, `{"secret":4711}`},
		"valuations of a type":    {split, `{"valuations":[4711]}`},
		"null valuations":         {split, `{"valuations":null}`},
		"a null valuation":        {split, `{"valuations":{"car":4711,"boat":null}}`},
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
		d := c.Committed(row.b(), sha(canon.Encode(tree)), e2e.Seal(t, e2e.BobsValues))
		a := c.Refused(400, "INVALID_INPUT", "POST", d.Path("/reveal"), d.Tokens[0], `{"input":`+row.input+`}`)
		if strings.Contains(a.ErrorText(), "4711") || !strings.Contains(a.ErrorText(), "input") {
			t.Errorf("%s: %s", name, a.ErrorText())
		}
		if v := d.View(); v.State != "REVEALING" || v.Parties[0].Revealed {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// SPEC 3: any rejection makes the deal VOID at once and names the rejector,
// whoever has yet to reveal.
func TestRejection(t *testing.T) {
	c := surfaceClient(t)
	b := e2e.ShapleyBody(time.Hour, 2*time.Hour)
	b["party_labels"] = []string{"ann", "bob", "cy"}
	for name, row := range map[string]struct {
		before, rejector int
		root             bool
	}{
		"first":        {0, 2, false},
		"in the midst": {1, 1, false},
		"last":         {2, 2, true},
	} {
		x := e2e.Open(c, b, 0, 0, e2e.Body{"accept": true}, e2e.Body{"accept": true}, e2e.Body{"accept": true})
		x.Inputs[row.rejector] = e2e.Seal(t, e2e.Body{"accept": false})
		for p, s := range x.Inputs {
			x.Deal.Commit(p, s)
		}
		for p := range row.before {
			x.Deal.Reveal(p, x.Inputs[p])
		}
		var r struct {
			State  string
			Result any
		}
		d := x.Deal
		d.Reveal(row.rejector, x.Inputs[row.rejector]).Into(t, &r)
		if r.State != "VOID" || r.Result != nil {
			t.Errorf("%s: %+v", name, r)
		}
		v := d.View()
		if v.State != "VOID" || len(v.VoidFlakers) != 1 || v.VoidFlakers[0] != row.rejector || string(v.Result) != "null" || v.ComputedAt != nil || v.CertificateID == nil || (v.RevealsClosedAt != nil) != row.root {
			t.Errorf("%s: %+v", name, v)
		}
		var cert struct {
			Outcome     string
			VoidFlakers []int   `json:"void_flakers"`
			InputRoot   *string `json:"input_root"`
		}
		e2e.Answer{Body: d.Certified(0)}.Into(t, &cert)
		if cert.Outcome != "VOID" || len(cert.VoidFlakers) != 1 || cert.VoidFlakers[0] != row.rejector || (cert.InputRoot != nil) != row.root {
			t.Errorf("%s: %+v", name, cert)
		}
		for p := range d.Tokens {
			c.Refused(409, "DEAL_ENDED", "POST", d.Path("/reveal"), d.Tokens[p], x.Inputs[p].Act("reveal"))
		}
	}
}
