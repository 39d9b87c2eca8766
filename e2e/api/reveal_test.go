package api

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// SPEC 2.6: a commitment uses the UTF-8 bytes of the salt's text, or the bytes that the text
// encodes in hex. input_root uses the same salt bytes as the commitment.
func TestReadingsOfASalt(t *testing.T) {
	c := newClient(t)
	const input = `{"valuations":{"boat":30,"car":70}}`
	other := e2e.Seal(t, e2e.BobsValues)
	otherText, err := canon.Marshal(other.Input)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ sent, bytes string }{
		"text":         {`"pepper é \ud83e\udd86"`, "pepper é 🦆"},
		"U+0000":       {`"a\u0000b"`, "a\x00b"},
		"hex as text":  {`"6bff001f"`, "6bff001f"},
		"hex as bytes": {`"6bFF001f"`, "\x6b\xff\x00\x1f"},
		"null":         {`null`, ""},
		"1024 bytes":   {`"` + strings.Repeat("é", 512) + `"`, strings.Repeat("é", 512)},
	} {
		d := c.Committed(split(), sha([]byte(input), []byte(row.bytes)), other)
		// The reveal need not be canonical JSON, which has boat before car.
		c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], `{"input":{"valuations":{"car":70,"boat":30}},"salt":`+row.sent+`}`)
		d.Reveal(1, other)
		var cert struct {
			InputRoot string `json:"input_root"`
		}
		e2e.Answer{Body: d.Certified(e2e.DefaultTimeout)}.Into(t, &cert)
		root := e2e.Hashed(1, e2e.Hashed(0, []byte(input+row.bytes)), e2e.Hashed(0, otherText, []byte(other.Salt)))
		if want := "sha256:" + hex.EncodeToString(root); cert.InputRoot != want {
			t.Errorf("salt %s: input_root %s, want %s", name, cert.InputRoot, want)
		}
	}
}

func TestRefusedReveals(t *testing.T) {
	c := newClient(t)
	s, other := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	d := c.Committed(split(), s.Commitment, other)
	for _, sent := range []any{
		e2e.Body{"input": s.Input, "salt": s.Salt + "0"},
		e2e.Body{"input": s.Input},
		e2e.Body{"input": e2e.BobsValues, "salt": s.Salt},
		e2e.Body{"input": e2e.Body{"valuations": s.Input["valuations"], "note": ""}, "salt": s.Salt},
		other.Act("reveal"),
		`{"input":{"valuations":{"car":70,"boat":30}},"Salt":"` + s.Salt + `"}`,
		`{"input":{"valuations":{"car":70,"boat":30}},"salt":"` + s.Salt + `\u0000"}`,
	} {
		a := c.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], sent)
		if strings.Contains(a.ErrorText(), s.Salt) || !strings.Contains(a.ErrorText(), s.Commitment) {
			t.Errorf("reveal %v: the error %s must contain the commitment %s and not the salt", sent, a.ErrorText(), s.Commitment)
		}
	}
	for input, b := range map[string]e2e.Body{`{"valuations":{"secret47110815":1}}`: split(), `{"nonce":"47110815g"}`: random(2, 1000), `{"accept":"true47110815"}`: shapley()} {
		d := c.Committed(b, sha([]byte(input)), other)
		a := c.Refused(400, "INVALID_INPUT", "POST", d.Path("/reveal"), d.Tokens[0], `{"input":`+input+`}`)
		if strings.Contains(a.ErrorText(), "47110815") || !strings.Contains(a.ErrorText(), "input") {
			t.Errorf("reveal of %s: the error %s must name the input and not repeat it", input, a.ErrorText())
		}
		if v := d.View(); v.State != "REVEALING" || v.Parties[0].Revealed {
			t.Errorf("after the refused reveal of %s the view is %+v, want REVEALING without a reveal", input, v)
		}
	}
	if v := d.View(); v.State != "REVEALING" || v.Parties[0].Revealed {
		t.Fatalf("after the refused reveals the view is %+v, want REVEALING without a reveal of party 0", v)
	}
	// Blanks, escapes and an unknown member of the body do not change the input.
	a := c.Want(200, "POST", d.Path("/reveal"), d.Tokens[0], " {\"salt\" : \""+s.Salt+"\",\n \"input\":{ \"v\\u0061luations\":{\"car\":70,\"bo\\u0061t\":30}}, \"extra\":null}\t")
	var r struct {
		State    string
		Party    *int
		Revealed bool
		Result   any
	}
	a.Into(t, &r)
	if r.State != "REVEALING" || r.Party == nil || *r.Party != 0 || !r.Revealed || r.Result != nil {
		t.Errorf("reveal of party 0: %s, want revealed, REVEALING and no result", a.Body)
	}
}

// SPEC 3: a rejection makes the deal VOID at once and names the rejector, even if others have
// not revealed.
func TestRejection(t *testing.T) {
	c := newClient(t)
	for _, row := range []struct{ before, rejector int }{{0, 2}, {1, 1}, {2, 2}} {
		accept := e2e.Body{"accept": true}
		inputs := []e2e.Body{accept, accept, accept}
		inputs[row.rejector] = e2e.Body{"accept": false}
		x := e2e.Open(c, changed(shapley(), "party_labels", []string{"ann", "bob", "cy"}), 3, row.before, inputs...)
		d, whole := x.Deal, row.before == 2
		var r struct {
			State  string
			Result any
		}
		if d.Reveal(row.rejector, x.Inputs[row.rejector]).Into(t, &r); r.State != "VOID" || r.Result != nil {
			t.Errorf("rejection %+v: response %+v, want VOID without a result", row, r)
		}
		v := d.View()
		if v.State != "VOID" || !slices.Equal(v.VoidFlakers, []int{row.rejector}) || string(v.Result) != "null" || v.ComputedAt != nil || v.CertificateID == nil || (v.RevealsClosedAt != nil) != whole {
			t.Errorf("rejection %+v: view %+v, want VOID with the rejector as the only flaker", row, v)
		}
		var cert struct {
			Outcome     string
			VoidFlakers []int   `json:"void_flakers"`
			InputRoot   *string `json:"input_root"`
		}
		e2e.Answer{Body: d.Certified(e2e.DefaultTimeout)}.Into(t, &cert)
		if cert.Outcome != "VOID" || !slices.Equal(cert.VoidFlakers, []int{row.rejector}) || (cert.InputRoot != nil) != whole {
			t.Errorf("rejection %+v: certificate %+v, want VOID with the rejector as the only flaker, and an input_root if all have revealed", row, cert)
		}
		for p := range d.Tokens {
			c.Refused(409, "DEAL_ENDED", "POST", d.Path("/reveal"), d.Tokens[p], x.Inputs[p].Act("reveal"))
		}
	}
}

// A malformed commitment is refused, and the error does not repeat the commitment. If the deal
// declares a seat key for a party, the party's commit needs a signature by that key. Two parties may
// send the same commitment.
func TestCommitments(t *testing.T) {
	c := newClient(t)
	d := c.Create(split())
	good := e2e.Seal(t, e2e.AnnsValues).Commitment
	for _, wrong := range []string{"", good[7:], good + " ", strings.ToUpper(good)} {
		a := c.Refused(400, "INVALID_COMMITMENT", "POST", d.Path("/commit"), d.Tokens[0], e2e.Body{"commitment": wrong})
		if len(wrong) > 40 && strings.Contains(a.ErrorText(), wrong) {
			t.Errorf("the error repeats the commitment: %s", a.ErrorText())
		}
	}
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
			t.Errorf("commit of party %d: %+v, want committed, %s and a next step with /reveal", party, r, state)
		}
	}
	seat := c.Create(changed(split(), "party_keys", []any{seatKey, nil}))
	c.Refused(403, "SEAT_KEY_REQUIRED", "POST", seat.Path("/commit"), seat.Tokens[0], e2e.Body{"commitment": good})
	c.Refused(400, "INVALID_PARTY_SIGNATURE", "POST", seat.Path("/commit"), seat.Tokens[0],
		e2e.Body{"commitment": good, "party_key": seatKey, "party_signature": "ed25519:" + strings.Repeat("0", 128)})
}

const seatKey = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a" // public key of test 1 in RFC 8032
