// Package problem holds the table of error codes, the error type that use cases return, and the
// names of the operations. REST, MCP, log-server, the OpenAPI document and the docs page all follow
// the table, so a code means the same everywhere.
package problem

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Code is the upper-case name at the beginning of an error message (SPEC 7.1).
type Code string

// Entry is a row of [Table].
type Entry struct {
	Code   Code
	Status int    // HTTP status
	When   string // the condition, shown in OpenAPI and /llms-full.txt
}

// Error is returned by a use case that refuses a request or fails. The text states the facts
// and the call to make next. That call is an argument of type [Call], which the method In
// renders for REST or MCP. Callers see the text, so the text MUST NOT contain an input, salt,
// token or key.
type Error struct {
	Code       Code
	RetryAfter int64 // seconds until the same call may succeed; 0: not known

	format string
	args   []any
	cause  error // only for the log
}

// New returns an error with a code of [Table]. format and args are those of fmt.Sprintf.
// In and Fix render an argument that is a Call for REST or MCP.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, format: format, args: args}
}

// WithRetryAfter returns a copy with RetryAfter set.
func (e *Error) WithRetryAfter(seconds int64) *Error {
	c := *e
	c.RetryAfter = seconds
	return &c
}

// WithCause returns a copy with an inner cause. The cause is logged and never sent to the
// caller.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// WithHint returns a copy with a hint appended to its text.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.format += format
	c.args = append(append([]any{}, e.args...), args...)
	return &c
}

// In returns `CODE: text`. It calls `words` to render each Call for REST or MCP.
func (e *Error) In(words func(Call) string) string {
	return string(e.Code) + ": " + e.Fix(words)
}

// Fix returns the text without the code. It calls `words` to render each Call for REST or MCP.
func (e *Error) Fix(words func(Call) string) string {
	args := make([]any, len(e.args))
	for i, arg := range e.args {
		if call, ok := arg.(Call); ok {
			arg = words(call)
		}
		args[i] = arg
	}
	return fmt.Sprintf(e.format, args...)
}

// Error returns the text for logs, with each Call rendered by Call.String.
func (e *Error) Error() string { return e.In(Call.String) }

// Unwrap returns the inner cause.
func (e *Error) Unwrap() error { return e.cause }

// Status returns the HTTP status of the code, or 500 if [Table] lacks the code.
func (e *Error) Status() int {
	row, _ := Lookup(e.Code)
	return cmp.Or(row.Status, 500)
}

// From returns the *Error inside err. If there is none, it returns INTERNAL with err as
// the cause.
func From(err error) *Error {
	if p, ok := errors.AsType[*Error](err); ok {
		return p
	}
	return New(Internal, "the service failed; nothing was lost: send the same request again with the same %s", KeyHeader).WithCause(err)
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	p, ok := errors.AsType[*Error](err)
	return ok && p.Code == code
}

// CodeOf returns the code of an error text of the form `CODE: fix` (SPEC 7.1), or "" if the text
// has another form.
func CodeOf(text string) Code {
	code, _, found := strings.Cut(text, ": ")
	if !found || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return ""
	}
	return Code(code)
}

// Lookup returns the row of a code, and whether the table has it.
func Lookup(code Code) (Entry, bool) {
	for _, row := range Table {
		if row.Code == code {
			return row, true
		}
	}
	return Entry{}, false
}

const mostListed = 8

// List formats and joins items for a text. Of more than 8 items it names the first 8 and the
// number of the others.
func List[T any](items []T, format, separator string) string {
	var texts []string
	for _, item := range items[:min(len(items), mostListed)] {
		texts = append(texts, fmt.Sprintf(format, item))
	}
	if more := len(items) - mostListed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}

// Op is an operation of the API: the route of REST, the tool of MCP, and what error texts call it.
// Package ops says how each operation is served.
type Op struct {
	Name   string // in logs, which use neither REST nor MCP names
	Method string
	Path   string
	Tool   string // the MCP tool for it; empty: none
}

// The operations.
var (
	CreateKey       = Op{"create key", "POST", "/v1/keys", "create_key"}
	ListAlgorithms  = Op{"list algorithms", "GET", "/v1/algorithms", "list_algorithms"}
	CreateDeal      = Op{"create deal", "POST", "/v1/deals", "create_deal"}
	ReadDeal        = Op{"read deal", "GET", "/v1/deals/{id}", "get_deal"}
	ReadDeclaration = Op{"read declaration", "GET", "/v1/deals/{id}/declaration", "compute_commitment_tool"} // REST: the values from which the client builds the bytes that a seat key signs; MCP: these bytes
	Commit          = Op{"commit", "POST", "/v1/deals/{id}/commit", "commit_input"}
	Reveal          = Op{"reveal", "POST", "/v1/deals/{id}/reveal", "reveal_input"}
	Draw            = Op{"draw", "POST", "/v1/deals/{id}/entropy", "get_certificate"} // this tool draws first
	Cancel          = Op{"cancel", "POST", "/v1/deals/{id}/cancel", ""}
	ReadCertificate = Op{"read certificate", "GET", "/v1/deals/{id}/certificate", "get_certificate"}
	ReadBundle      = Op{"read bundle", "GET", "/v1/deals/{id}/bundle", "get_certificate"}
	ReadInputs      = Op{"read inputs", "GET", "/v1/deals/{id}/inputs", ""}
	ReadSeals       = Op{"read seals", "GET", "/v1/deals/{id}/seals", ""}
	Disclose        = Op{"disclose", "POST", "/v1/deals/{id}/disclose", ""}
	ReadPublic      = Op{"read public deal", "GET", "/v1/public/{id}", ""}
	Verify          = Op{"verify", "GET", "/v1/verify/{cert_id}", "verify_certificate"}
	VerifySubmitted = Op{"verify a document", "POST", "/v1/verify", "verify_certificate"}
	ReadStatus      = Op{"read status", "GET", "/v1/status", ""}
	ReadKeys        = Op{"read keys", "GET", "/v1/pubkeys", ""}
	ReadBeacon      = Op{"read beacon", "GET", "/v1/beacon", ""}
	ReadOpenAPI     = Op{"read OpenAPI", "GET", "/openapi.json", ""}
)

// Ops lists the operations.
var Ops = []Op{
	CreateKey, ListAlgorithms, CreateDeal, ReadDeal, ReadDeclaration, Commit, Reveal, Draw, Cancel, ReadCertificate,
	ReadBundle, ReadInputs, ReadSeals, Disclose, ReadPublic, Verify, VerifySubmitted, ReadStatus, ReadKeys, ReadBeacon, ReadOpenAPI,
}

// Call is an operation that an error text names. DealID is empty if the operation needs no
// deal, or if the text is not about one particular deal.
type Call struct {
	Op     Op
	DealID string
}

// KeyHeader is the idempotency key in an error text: Idempotency-Key in REST, idempotency_key in MCP.
var KeyHeader = Call{Op: Op{"idempotency key", "", "Idempotency-Key", "idempotency_key"}}

// WaitLongest is the longest wait of a call in an error text.
var WaitLongest = Call{Op: Op{"wait", "", "?wait=45", "wait_seconds 45"}}

// String returns the operation's name for logs, followed by DealID if it is set.
func (c Call) String() string { return strings.TrimSpace(c.Op.Name + " " + c.DealID) }

// REST returns the method and path of the call. For KeyHeader it returns the header's name.
func (c Call) REST() string {
	text := strings.TrimSpace(c.Op.Method + " " + c.Op.Path)
	if c.DealID != "" {
		text = strings.Replace(text, "{id}", c.DealID, 1)
	}
	return text
}

// MCP returns the tool for the call. For KeyHeader it returns the argument's name.
func (c Call) MCP() string { return c.Op.Tool }
