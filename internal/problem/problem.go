// Package problem is the one table of error codes and the error that use cases
// return. REST, MCP, log-server, the OpenAPI document and the docs page all read
// it, so a code means the same thing everywhere. It is pure.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the upper-case name before the colon of an error message.
// SPEC 7.1: the string begins with an upper-case code, a colon and a fix.
type Code string

// Entry is a row of the table.
type Entry struct {
	Code   Code
	Status int    // HTTP status
	When   string // the condition, for the documents
}

// Error is what a use case returns when it refuses or fails: a code, the facts
// (values, limits, parties, deadlines) and the call to make next. It names
// calls as values of type Call, and each surface renders them in its own words
// with In. Its text is safe to show to the caller: it MUST hold no input, salt,
// token or key.
type Error struct {
	Code       Code
	RetryAfter int64 // seconds until the same call may succeed; 0: not known

	format string
	args   []any
	cause  error // for the log only
}

// New returns an error with a code of the table. Arguments of type Call are
// rendered by the surface that shows the error.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, format: format, args: args}
}

// After returns a copy that tells the caller to wait that many seconds.
func (e *Error) After(seconds int64) *Error {
	c := *e
	c.RetryAfter = seconds
	return &c
}

// Because returns a copy that keeps the inner cause for the log; the caller
// never sees it.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Also returns a copy whose text goes on with a further hint.
func (e *Error) Also(format string, args ...any) *Error {
	c := *e
	c.format += format
	c.args = append(append([]any{}, e.args...), args...)
	return &c
}

// In returns `CODE: what to do next` with every Call in the words of a surface.
func (e *Error) In(words func(Call) string) string {
	return string(e.Code) + ": " + e.Fix(words)
}

// Fix is In without the code.
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

// Error is the text in the words of no surface, for logs.
func (e *Error) Error() string { return e.In(Call.String) }

// Unwrap returns the inner cause.
func (e *Error) Unwrap() error { return e.cause }

// Status is the HTTP status of the code; 500 for one that is not in the table.
func (e *Error) Status() int {
	if row, ok := Lookup(e.Code); ok {
		return row.Status
	}
	return 500
}

// From returns the *Error inside err; any other error becomes INTERNAL, with err
// as the cause.
func From(err error) *Error {
	if p, ok := errors.AsType[*Error](err); ok {
		return p
	}
	return New(Internal, "the service failed; nothing was lost: send the same request again with the same %s", KeyHeader).Because(err)
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	p, ok := errors.AsType[*Error](err)
	return ok && p.Code == code
}

// Lookup finds a code's row.
func Lookup(code Code) (Entry, bool) {
	for _, row := range Table {
		if row.Code == code {
			return row, true
		}
	}
	return Entry{}, false
}

// Op is an operation of the service that an error may send its reader to.
type Op int

// The operations, and the name of the idempotency key, which the surfaces spell
// differently too.
const (
	CreateKey Op = iota
	ListAlgorithms
	CreateDeal
	ReadDeal
	ReadDeclaration
	Commit
	Reveal
	Draw
	ReadCertificate
	Verify
	IdempotencyKey
)

// Ops are all operations by their neutral names.
var Ops = [...]string{"create key", "list algorithms", "create deal", "read deal", "read declaration", "commit", "reveal", "draw", "read certificate", "verify", "idempotency key"}

// Call is one operation on one deal; DealID is empty where the operation has
// none or any deal is meant.
type Call struct {
	Op     Op
	DealID string
}

// KeyHeader stands for the name of the idempotency key.
var KeyHeader = Call{Op: IdempotencyKey}

// String names the call in the words of no surface.
func (c Call) String() string { return strings.TrimSpace(Ops[c.Op] + " " + c.DealID) }
