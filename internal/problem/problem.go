// Package problem is the one table of error codes. REST, MCP, the OpenAPI
// document and the docs page all read it, so that a code means the same thing
// wherever it is met.
package problem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
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

// Error is what a use case answers when it refuses or fails. Its text is
// `CODE: what to do next` and is safe to show to the caller: it MUST hold no
// input, salt, token or key.
type Error struct {
	Code       Code
	Fix        string
	RetryAfter time.Duration // sent as Retry-After where it is not zero
	cause      error         // for the log only
}

// New makes an error of a code in the table.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Fix: fmt.Sprintf(format, args...)}
}

// Because keeps the inner cause for the log; the caller never sees it.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Fix }

func (e *Error) Unwrap() error { return e.cause }

// Cause is the inner error, or nil.
func (e *Error) Cause() error { return e.cause }

// Status is the HTTP status of the code; 500 for one that is not in the table.
func (e *Error) Status() int {
	if row, ok := Lookup(e.Code); ok {
		return row.Status
	}
	return http.StatusInternalServerError
}

// From gives the *Error inside err; any other error becomes INTERNAL, with err
// as the cause.
func From(err error) *Error {
	if p, ok := errors.AsType[*Error](err); ok {
		return p
	}
	return New(Internal, "the service failed; nothing was lost: send the same request again with the same Idempotency-Key").Because(err)
}

// Is tells whether err carries the code.
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

// Write answers with the error's status and `{"error": "CODE: fix"}` (SPEC 7.1).
func Write(w http.ResponseWriter, err error) {
	p := From(err)
	p.Count()
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]string{"error": p.Error()}) // a map of strings always encodes
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if p.Status() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(p.Status())
	_, _ = w.Write(body.Bytes())
}
