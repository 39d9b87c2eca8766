package escrow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/problem"
)

// Bodies come as trees of package canon. A required member that is missing or
// null is a 400, an optional one that is null counts as left out.

const (
	maxSalt = 1024 // bytes
	saltTip = "commit with a salt of 16 random bytes: without one, whoever sees a commitment can guess a guessable input"
)

// CreateRequest is a deal creation body (SPEC 2.2).
type CreateRequest struct {
	Algorithm      string
	Mode           string // sealed, open
	Retention      string // standard, purge
	Labels         []string
	CommitDeadline int64 // unix seconds, like the next
	RevealDeadline int64
	Params         map[string]any
	unknown        []string
}

// ParseCreate reads the shape of a creation body.
func ParseCreate(body map[string]any) (r CreateRequest, err error) {
	o := object{body, &err}
	r.Algorithm = o.text("algorithm", "one of split.v1, random.v1, shapley.v1")
	r.Mode = o.choice("mode", "sealed", "open")
	r.Retention = o.choice("retention", "standard", "purge")
	for i, label := range o.list("party_labels", "an array of at least 2 strings, one a party") {
		text, ok := label.(string)
		if !ok {
			o.fail("party_labels[%d] must be a string", i)
		}
		r.Labels = append(r.Labels, text)
	}
	r.CommitDeadline = o.integer("commit_deadline", "unix seconds UTC, after now")
	r.RevealDeadline = o.integer("reveal_deadline", "unix seconds UTC, after commit_deadline")
	r.Params = o.optionalObject("algorithm_params")
	known := []string{"algorithm", "mode", "retention", "party_labels", "commit_deadline", "reveal_deadline", "algorithm_params"}
	for name := range body {
		if !slices.Contains(known, name) {
			r.unknown = append(r.unknown, name)
		}
	}
	slices.Sort(r.unknown)
	return r, err
}

// ParseCommit reads `{commitment}`.
func ParseCommit(body map[string]any) (commitment [32]byte, err error) {
	o := object{body, &err}
	text := o.text("commitment", "`sha256:` and 64 lower-case hex digits")
	if err != nil {
		return commitment, err
	}
	commitment, bad := canon.ParseCommitment(text)
	if bad != nil {
		return commitment, problem.New(problem.InvalidCommitment, "commitment must be `sha256:` and 64 lower-case hex digits, the SHA-256 of the RFC 8785 form of your input followed by the salt; it has %d characters", len(text))
	}
	return commitment, nil
}

// RevealRequest is a reveal body: the input and its salt.
type RevealRequest struct {
	Input map[string]any
	Salt  string
}

// ParseReveal reads `{input, salt}`. Its errors never show either.
func ParseReveal(body map[string]any) (r RevealRequest, err error) {
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
		o.fail("salt has %d bytes; at most %d", len(r.Salt), maxSalt)
	}
	return r, err
}

// object reads members and keeps the first error.
type object struct {
	members map[string]any
	err     *error
}

func (o object) fail(format string, args ...any) {
	if *o.err == nil {
		*o.err = problem.New(problem.InvalidRequest, format, args...)
	}
}

func (o object) text(name, want string) string {
	v, ok := o.members[name].(string)
	if !ok {
		o.fail("%s is %s; it must be %s", name, kind(o.members[name]), want)
	}
	return v
}

func (o object) integer(name, want string) int64 {
	v, ok := o.members[name].(int64)
	if !ok {
		o.fail("%s is %s; it must be an integer: %s", name, kind(o.members[name]), want)
	}
	return v
}

func (o object) list(name, want string) []any {
	v, ok := o.members[name].([]any)
	if !ok {
		o.fail("%s is %s; it must be %s", name, kind(o.members[name]), want)
	}
	return v
}

func (o object) object(name, want string) map[string]any {
	v, ok := o.members[name].(map[string]any)
	if !ok {
		o.fail("%s is %s; it must be %s", name, kind(o.members[name]), want)
	}
	return v
}

func (o object) optionalObject(name string) map[string]any {
	if o.members[name] == nil {
		return map[string]any{}
	}
	return o.object(name, "an object")
}

// choice reads one of two words; the first is the default.
func (o object) choice(name, first, second string) string {
	switch v := o.members[name]; v {
	case nil, first:
		return first
	case second:
		return second
	default:
		o.fail("%s is %s; it must be %q or %q", name, shown(v), first, second)
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

// shown quotes a declared value, cut to a readable length.
func shown(v any) string {
	text, ok := v.(string)
	if !ok {
		return kind(v)
	}
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:60], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
