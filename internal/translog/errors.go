package translog

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable is returned when the log, its database or its signer could not
	// be reached in time, or the client is not set up to reach it. The call may be
	// repeated: an append that was sequenced keeps its index.
	ErrUnavailable = errors.New("the transparency log is out of reach")

	// ErrRefused is returned when the log does not admit this entry with this
	// signature. Repeating the call does not help.
	ErrRefused = errors.New("the transparency log refused the entry")

	// ErrTagTaken is returned when the log has another entry under the tag. It is
	// for ever: this entry never gets a leaf with that tag.
	ErrTagTaken = errors.New("the transparency log has another entry under this tag")

	// ErrInconsistent is returned when what is stored contradicts itself or the
	// signed head.
	ErrInconsistent = errors.New("the transparency log is inconsistent")

	// ErrNotFound is returned when the log has no such leaf under a published head,
	// or has published no head of that size.
	ErrNotFound = errors.New("the transparency log has no such leaf or head")

	errNoHead = errors.New("no head of that size was published")
)

// unavailable marks a failure of the database or the network.
func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }
