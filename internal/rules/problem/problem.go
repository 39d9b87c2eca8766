// Package problem holds the table of error codes and the error type that use cases
// return. REST, MCP, log-server, the OpenAPI document and the docs page all follow the
// table, so a code means the same everywhere.
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
