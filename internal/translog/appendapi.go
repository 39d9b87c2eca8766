package translog

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	appendPath = "/v1/append"
	// maxAppendBody is many times the hex strings of an append.
	maxAppendBody = 4096
	appendTimeout = 25 * time.Second
)

type appendRequest struct {
	Entry     string `json:"entry"`     // 64 lower-case hex digits
	Signature string `json:"signature"` // es256:…, over the entry
	// Tag is 64 lower-case hex digits. The release before this one sends none.
	Tag string `json:"tag,omitempty"`
}

// AppendHandler serves the private append port to whoever holds one of the
// deployment's append secrets.
func (l *Log) AppendHandler(secrets ...string) http.Handler {
	want := make([][32]byte, len(secrets))
	for i, secret := range secrets {
		want[i] = sha256.Sum256([]byte(secret))
	}
	private := func(serve func(*http.Request) (any, error)) route {
		return route{"POST, OPTIONS", func(r *http.Request) (any, error) {
			if err := authorize(r, want); err != nil {
				return nil, err
			}
			return serve(r)
		}}
	}
	return routes{appendPath: private(l.serveAppend), proofsPath: private(l.serveProofs)}.handler(l.checks.logger, false)
}

// authorize compares digests, in constant time and whatever the length.
func authorize(r *http.Request, want [][32]byte) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return problem.New(problem.AuthRequired, "send `Authorization: Bearer` with the append secret of the deployment")
	}
	got := sha256.Sum256([]byte(token))
	matches := 0
	for _, one := range want {
		matches |= subtle.ConstantTimeCompare(got[:], one[:])
	}
	if matches != 1 {
		return problem.New(problem.InvalidCredential, "this is no append secret of the deployment: set the same FAIRPACT_APPEND_SECRET_FILE for the log server and its callers")
	}
	return nil
}

func (l *Log) serveAppend(r *http.Request) (any, error) {
	if l.readOnly {
		return nil, problem.New(problem.ReadOnly, "the log takes no entries now, for maintenance; send the same request again later").After(10)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxAppendBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes: send {\"entry\": …, \"signature\": …, \"tag\": …} alone", maxAppendBody)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body did not arrive whole: send it again")
	}
	var request appendRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body is not JSON of the form {\"entry\": string, \"signature\": string, \"tag\": string}: correct it and send it again")
	}
	entry, err := parseHash(request.Entry)
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "entry has %v: send the 64 lower-case hex digits of a SHA-256 digest", err)
	}
	if request.Signature == "" {
		return nil, problem.New(problem.InvalidRequest, "signature is missing: send the es256 signature over the digest in entry")
	}
	var tag Tag
	if request.Tag != "" {
		if tag, err = parseHash(request.Tag); err != nil {
			return nil, problem.New(problem.InvalidRequest, "tag has %v: send 64 lower-case hex digits, or no tag", err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), appendTimeout)
	defer cancel()
	return l.Append(ctx, entry, request.Signature, tag)
}
