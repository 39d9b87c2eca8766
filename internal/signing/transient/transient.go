// Package transient marks the errors of a key's provider that may pass:
// throttling, a 5xx, a broken connection, an answer that was damaged on its way.
// Only a call that failed so is tried again.
package transient

import "errors"

type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// Error marks err as one that may pass.
func Error(err error) error { return failure{err} }

// Is reports whether err, or an error that it wraps, may pass.
func Is(err error) bool {
	_, is := errors.AsType[failure](err)
	return is
}
