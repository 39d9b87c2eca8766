package ops

import (
	"cmp"
	"context"
	"strings"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// SmallValues is the most values of a small body. Unknown members count.
const SmallValues = 64

// TreeBytes returns how many bytes the tree of a text takes at most, and how many values it has. If the text has more than `most`
// values, the error is INVALID_REQUEST.
func TreeBytes(raw []byte, most int) (tree int64, values int, err error) {
	values, objects := canon.Count(raw)
	if values > most {
		return 0, 0, problem.New(problem.InvalidRequest, "the JSON text has more than %d values; leave out the members that are not described", most)
	}
	return budget.Value*int64(values) + budget.Object*int64(objects) + int64(len(raw)), values, nil
}

// Object parses a request body for the other parsers in this file, after the call in ctx has taken
// what its tree needs. An error never contains a name or a value from raw.
func (o *Operation) Object(ctx context.Context, raw []byte) (map[string]any, error) {
	tree, values, err := TreeBytes(raw, cmp.Or(o.Values, SmallValues))
	if err == nil && o.Answer != nil {
		err = budget.From(ctx).Hold(ctx, int64(len(raw)+2*o.Answer(len(raw), values)))
	}
	if err == nil {
		err = budget.From(ctx).Parse(ctx, len(raw), tree)
	}
	if err != nil {
		return nil, err
	}
	if o.Empty && len(raw) == 0 {
		return map[string]any{}, nil
	}
	value, err := canon.Parse(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "%s; send one JSON object (I-JSON, integers only)", err)
	}
	body, ok := value.(map[string]any)
	if !ok {
		return nil, problem.New(problem.InvalidRequest, "the body is %s; it must be an object", canon.Kind(value))
	}
	return body, nil
}

// Declared parses the body that creates a deal (SPEC 2.2). In this and the following parsers, an
// optional member that is null counts as left out.
func Declared(body map[string]any) (r escrow.Declared, err error) {
	m := canon.MembersOf(body, "")
	r.Algorithm = m.Text("algorithm", "one of "+strings.Join(algorithm.IDs(), ", "))
	r.Mode = m.Choice("mode", "sealed", "open")
	r.Retention = m.Choice("retention", "standard", "purge")
	r.Labels = m.Texts("party_labels", "an array of at least 2 strings, one for each party")
	if m.Has("party_keys") {
		r.SeatKeys = []*string{}
		for i, key := range m.List("party_keys", "an array") {
			text, ok := key.(string)
			switch {
			case key == nil:
				r.SeatKeys = append(r.SeatKeys, nil)
			case ok:
				r.SeatKeys = append(r.SeatKeys, &text)
			default:
				m.Fail("party_keys[%d] is %s: give a string or null", i, canon.Kind(key))
			}
		}
	}
	r.Seals = only(m, "seals", deal.SealsRequired)
	r.Audience, r.ActedBy = only(m, "audience", deal.AudiencePublic), only(m, "acted_by", deal.ActedByInitiator)
	r.Title, r.Message = words(m, "title", deal.Title), words(m, "message", deal.Message)
	r.CommitDeadline = m.Integer("commit_deadline", "an integer: unix seconds UTC, after now")
	r.RevealDeadline = m.Integer("reveal_deadline", "an integer: unix seconds UTC, after commit_deadline")
	var params map[string]any
	if m.Has("algorithm_params") {
		params = m.Object("algorithm_params", "an object")
	}
	r.Params = canon.Encode(params)
	r.Unknown = m.Unknown("algorithm", "mode", "retention", "party_labels", "commit_deadline", "reveal_deadline", "algorithm_params", "party_keys", "seals", "audience", "acted_by", "title", "message")
	return r, Refused(m)
}

// only returns an optional member that has one value.
func only(m *canon.Members, name, value string) string {
	if !m.Has(name) {
		return ""
	}
	given := m.Text(name, "`"+value+"`")
	if given != value {
		m.Fail("%s is %.60q; it must be `%s`, or left out", name, given, value)
	}
	return given
}

// words returns an optional text that must keep a rule of package deal.
func words(m *canon.Members, name string, rule deal.Text) string {
	if !m.Has(name) {
		return ""
	}
	text := m.Text(name, "a string")
	if err := rule.Check(text); err != nil {
		m.Fail("%s %s", name, err)
	}
	return text
}

// Commitment parses `{commitment, party_key, party_signature, seal}`. All but commitment are optional.
// party_key and party_signature require each other.
func Commitment(body map[string]any) (c escrow.Commitment, err error) {
	m := canon.MembersOf(body, "")
	text := m.Text("commitment", "`sha256:` and 64 lower-case hex digits")
	if m.Has("party_key") || m.Has("party_signature") {
		c.Key = m.Text("party_key", "es256:HEX or ed25519:HEX, together with party_signature")
		c.Signature = m.Text("party_signature", "`es256:` or `ed25519:`, followed by 128 lower-case hex digits, together with party_key")
	}
	if m.Has("seal") {
		if c.Seal = m.Text("seal", "the armored text of a timelock seal"); c.Seal == "" {
			m.Fail("seal is empty; it must be the armored text of a timelock seal, or left out")
		}
	}
	if err := Refused(m); err != nil {
		return c, err
	}
	if c.Hash, err = canon.ParseCommitment(text); err != nil {
		return c, problem.New(problem.InvalidCommitment, "commitment is a string of %d bytes; it must be `sha256:` and 64 lower-case hex digits, the SHA-256 of the RFC 8785 form of your input followed by the salt", len(text))
	}
	return c, nil
}

// Submitted is a certificate that the caller received from somebody.
type Submitted struct {
	Document map[string]any
	CertID   string // the id that the caller expects; empty: any
}

// SubmittedCertificate parses `{certificate, cert_id}`. cert_id is optional.
func SubmittedCertificate(body map[string]any) (s Submitted, err error) {
	m := canon.MembersOf(body, "")
	s.Document = m.Object("certificate", "the certificate as you received it, a JSON object")
	if s.Document["bundle_version"] != nil {
		m.Fail("certificate is a bundle: pass the bundle's member `certificate`, or verify the whole bundle with fairpactctl, the Python verifier or the web page")
	}
	if m.Has("cert_id") {
		s.CertID = m.Text("cert_id", "a string, the id that you expect in the certificate; leave cert_id out if you expect none")
	}
	return s, Refused(m)
}

// Opening parses `{input, salt}`. An error never quotes the input or the salt.
func Opening(body map[string]any) (r escrow.Opening, err error) {
	m := canon.MembersOf(body, "")
	r.Input = m.Object("input", "your input, a JSON object")
	if m.Has("salt") {
		r.Salt = m.Text("salt", "a string")
	}
	if len(r.Salt) > canon.MaxSalt {
		m.Fail("salt has %d bytes; it must have at most %d", len(r.Salt), canon.MaxSalt)
	}
	return r, Refused(m)
}

// Refused returns the first error of m as INVALID_REQUEST, or nil.
func Refused(m *canon.Members) error {
	if m.Err() == nil {
		return nil
	}
	return problem.New(problem.InvalidRequest, "%s", m.Err())
}
