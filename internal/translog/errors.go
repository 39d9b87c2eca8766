package translog

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

var (
	// ErrUnavailable is returned when the log, its database or its signer could not be reached in
	// time, or the client is misconfigured. The call may be repeated.
	ErrUnavailable = errors.New("the transparency log is out of reach")

	// ErrRefused is returned when the log does not admit the entry. Do not repeat the call.
	ErrRefused = errors.New("the transparency log refused the entry")

	// ErrTagTaken is returned when the log has another entry under the tag. This is final.
	ErrTagTaken = errors.New("the transparency log has another entry under this tag")

	// ErrInconsistent is returned when the tables contradict each other or the signed head.
	ErrInconsistent = errors.New("the transparency log is inconsistent")

	// ErrNotFound is returned when the head of a proof covers no leaf that has the requested
	// index and entry. A Client also returns ErrNotFound when the log has not published the
	// requested head or checkpoint.
	ErrNotFound = errors.New("the transparency log has no such leaf or head")

	errNoHead = errors.New("no head of that size was published")
)

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

func notLogServer(err error) error {
	return fmt.Errorf("%w: the answer is not from a log-server: %w; check the address", ErrUnavailable, err)
}

func fromAnswer(status int, body []byte) error {
	var answer struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error == "" {
		return fmt.Errorf("%w: the answer has status %d and no error text", ErrUnavailable, status)
	}
	return fromText(answer.Error)
}

// fromText converts the error text of a log-server. A code that says nothing about the entry or
// head, such as NOT_FOUND for a path that the server lacks, becomes ErrUnavailable.
func fromText(text string) error {
	kind := ErrUnavailable
	switch problem.CodeOf(text) {
	case problem.LeafNotFound, problem.HeadNotFound, problem.CheckpointNotFound:
		kind = ErrNotFound
	case problem.TagTaken:
		kind = ErrTagTaken
	case problem.LogInconsistent:
		kind = ErrInconsistent
	case problem.Forbidden, problem.InvalidRequest, problem.InvalidJSON, problem.BodyTooLarge:
		kind = ErrRefused
	}
	return fmt.Errorf("%w: %s", kind, text)
}
