// Package wire reads and writes the JSON bodies of API requests and answers, for REST and MCP
// alike. MCP answers differ from REST bodies only in the texts that name calls and in the
// members that package mcp adds.
package wire

import (
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Object parses a request body. The other parsers in this file take the members that Object
// returns. If a required member is missing or null, a parser returns an error with status 400.
// Parsers ignore an optional member that is null.

const maxSalt = 1024 // bytes

// Object parses a JSON object. If empty is true and raw has no bytes, Object returns an
// object without members. An error never contains a name or a value from raw.
func Object(raw []byte, empty bool) (map[string]any, error) {
	if empty && len(raw) == 0 {
		return map[string]any{}, nil
	}
	tree, err := canon.Parse(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "%s; send one JSON object (I-JSON, integers only)", err)
	}
	body, ok := tree.(map[string]any)
	if !ok {
		return nil, problem.New(problem.InvalidRequest, "the body is %s; it must be an object", kind(tree))
	}
	return body, nil
}

// Declared parses the body that creates a deal (SPEC 2.2).
func Declared(body map[string]any) (r escrow.Declared, err error) {
	o := object{body, &err}
	r.Algorithm = o.text("algorithm", "one of "+strings.Join(algorithm.IDs(), ", "))
	r.Mode = o.choice("mode", "sealed", "open")
	r.Retention = o.choice("retention", "standard", "purge")
	for i, label := range o.list("party_labels", "an array of at least 2 strings, one for each party") {
		text, ok := label.(string)
		if !ok {
			o.fail("party_labels[%d] must be a string", i)
		}
		r.Labels = append(r.Labels, text)
	}
	if body["party_keys"] != nil {
		r.PartyKeys = []*string{}
	}
	for i, key := range o.optionalList("party_keys") {
		text, ok := key.(string)
		switch {
		case key == nil:
			r.PartyKeys = append(r.PartyKeys, nil)
		case ok:
			r.PartyKeys = append(r.PartyKeys, &text)
		default:
			o.fail("party_keys[%d] must be a string or null", i)
		}
	}
	r.CommitDeadline = o.integer("commit_deadline", "unix seconds UTC, after now")
	r.RevealDeadline = o.integer("reveal_deadline", "unix seconds UTC, after commit_deadline")
	r.Params = o.optionalObject("algorithm_params")
	known := []string{"algorithm", "mode", "retention", "party_labels", "commit_deadline", "reveal_deadline", "algorithm_params", "party_keys"}
	for name := range body {
		if !slices.Contains(known, name) {
			r.Unknown = append(r.Unknown, name)
		}
	}
	slices.Sort(r.Unknown)
	return r, err
}

// Commitment parses `{commitment, party_key, party_signature}`. party_key and
// party_signature are optional and require each other.
func Commitment(body map[string]any) (c escrow.Commitment, err error) {
	o := object{body, &err}
	text := o.text("commitment", "`sha256:` and 64 lower-case hex digits")
	if body["party_key"] != nil || body["party_signature"] != nil {
		c.Key = o.text("party_key", "es256:HEX or ed25519:HEX, together with party_signature")
		c.Signature = o.text("party_signature", "`es256:` or `ed25519:`, followed by 128 lower-case hex digits, together with party_key")
	}
	if err != nil {
		return c, err
	}
	var bad error
	if c.Hash, bad = canon.ParseCommitment(text); bad != nil {
		return c, problem.New(problem.InvalidCommitment, "commitment is a string of %d bytes; it must be `sha256:` and 64 lower-case hex digits, the SHA-256 of the RFC 8785 form of your input followed by the salt", len(text))
	}
	return c, nil
}

// SubmittedCertificate parses `{certificate, cert_id}`: a certificate that the caller received
// from somebody and, optionally, the certificate id that the caller expects.
func SubmittedCertificate(body map[string]any) (document map[string]any, certID string, err error) {
	o := object{body, &err}
	document = o.object("certificate", "the certificate as you received it, a JSON object")
	if document["bundle_version"] != nil {
		o.fail("certificate is a bundle: pass the bundle's member `certificate`, or verify the whole bundle with fairpactctl, the Python verifier or the web page")
	}
	if body["cert_id"] != nil {
		certID = o.text("cert_id", "a string, the id that you expect in the certificate; leave cert_id out if you expect none")
	}
	return document, certID, err
}

// Opening parses `{input, salt}`. An error never quotes the input or the salt.
func Opening(body map[string]any) (r escrow.Opening, err error) {
	o := object{body, &err}
	r.Input = o.object("input", "the object that was committed to")
	if salt, ok := body["salt"]; ok && salt != nil {
		text, isText := salt.(string)
		if !isText {
			o.fail("salt must be a string")
		}
		r.Salt = text
	}
	if len(r.Salt) > maxSalt {
		o.fail("salt has %d bytes; it must have at most %d", len(r.Salt), maxSalt)
	}
	return r, err
}

type object struct {
	members map[string]any
	err     *error
}

func (o object) fail(format string, args ...any) {
	if *o.err == nil {
		*o.err = problem.New(problem.InvalidRequest, format, args...)
	}
}

func member[T any](o object, name, want string) T {
	v, ok := o.members[name].(T)
	if !ok {
		o.fail("%s is %s; it must be %s", name, kind(o.members[name]), want)
	}
	return v
}

func (o object) text(name, want string) string   { return member[string](o, name, want) }
func (o object) list(name, want string) []any    { return member[[]any](o, name, want) }
func (o object) integer(name, want string) int64 { return member[int64](o, name, "an integer: "+want) }
func (o object) object(name, want string) map[string]any {
	return member[map[string]any](o, name, want)
}

func (o object) optionalObject(name string) map[string]any {
	if o.members[name] == nil {
		return map[string]any{}
	}
	return o.object(name, "an object")
}

func (o object) optionalList(name string) []any {
	if o.members[name] == nil {
		return nil
	}
	return o.list(name, "an array")
}

func (o object) choice(name, first, second string) string {
	switch v := o.members[name]; v {
	case nil, first:
		return first
	case second:
		return second
	default:
		shown := kind(v)
		if text, ok := v.(string); ok {
			shown = escrow.Shown(text)
		}
		o.fail("%s is %s; it must be %q or %q", name, shown, first, second)
		return first
	}
}

func kind(v any) string {
	switch v.(type) {
	case nil:
		return "missing or null"
	case bool:
		return "a boolean"
	case int64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}
