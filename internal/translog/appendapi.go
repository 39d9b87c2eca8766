package translog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/problem"
)

const (
	appendPath = "/v1/append"
	// maxAppendBody is many times the size of the digests and signatures of maxAppends.
	maxAppendBody = maxAppends << 10
	appendTimeout = 25 * time.Second
)

type appendRequest struct {
	Entry     string `json:"entry"`     // 64 lower-case hex digits
	Signature string `json:"signature"` // es256:…, over the entry
	// Tag is 64 lower-case hex digits. The previous release does not send it.
	Tag string `json:"tag,omitempty"`
}

// AppendHandler serves the private append port to callers with one of the deployment's
// append secrets.
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

// authorize compares digests of the secrets, in constant time and independent of length.
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
		return problem.New(problem.InvalidCredential, "this is not an append secret of the deployment: set the same FAIRPACT_APPEND_SECRET_FILE for the log server and its callers")
	}
	return nil
}

func (l *Log) serveAppend(r *http.Request) (any, error) {
	if l.readOnly {
		return nil, problem.New(problem.ReadOnly, "the log is read-only for maintenance: send the same request again later").After(10)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxAppendBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes: send only {\"entry\": …, \"signature\": …, \"tag\": …}, or a list of at most %d of them", maxAppendBody, maxAppends)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body is incomplete: send it again")
	}
	ctx, cancel := context.WithTimeout(r.Context(), appendTimeout)
	defer cancel()
	if bytes.HasPrefix(body, []byte("[")) {
		return l.appendList(ctx, body)
	}
	var request appendRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body is not JSON of the form {\"entry\": string, \"signature\": string, \"tag\": string}: correct it and send it again")
	}
	one, err := request.parse()
	if err != nil {
		return nil, err
	}
	return l.Append(ctx, one.entry, one.signature, one.tag)
}

func (r appendRequest) parse() (one signedEntry, err error) {
	if one.entry, err = canon.ParseHash(r.Entry); err != nil {
		return one, problem.New(problem.InvalidRequest, "entry has %v: send a SHA-256 digest in hex", err)
	}
	if one.signature = r.Signature; r.Signature == "" {
		return one, problem.New(problem.InvalidRequest, "signature is missing: send the es256 signature over the digest in entry")
	}
	if r.Tag != "" {
		if one.tag, err = canon.ParseHash(r.Tag); err != nil {
			return one, problem.New(problem.InvalidRequest, "tag has %v: send a SHA-256 digest in hex, or no tag", err)
		}
	}
	return one, nil
}

// A process of the deployment asks for many appends and proofs at once: the calls that wait
// at the same moment share one request to the append port.

const (
	maxAppends     = 64 // most entries of one request
	appendRequests = 2  // most requests with entries of one client at once
)

// answered is the answer to an entry of a list, or the error text that the entry alone
// would get.
type answered struct {
	*Appended
	Error string `json:"error,omitempty"`
}

// appendList appends the entries of a list. If the log could not take them all, as in an
// outage, the whole request fails: an entry is logged once, however often it is sent.
func (l *Log) appendList(ctx context.Context, body []byte) (any, error) {
	var requests []appendRequest
	if err := json.Unmarshal(body, &requests); err != nil || len(requests) == 0 || len(requests) > maxAppends {
		return nil, problem.New(problem.InvalidJSON, "the body is not a list of 1 to %d objects of the form {\"entry\": string, \"signature\": string, \"tag\": string}: correct it and send it again", maxAppends)
	}
	entries := make([]signedEntry, len(requests))
	for i, request := range requests {
		var err error
		if entries[i], err = request.parse(); err != nil {
			return nil, err
		}
	}
	results, err := l.appendAll(ctx, entries)
	if err != nil {
		return nil, err
	}
	answers := make([]answered, len(results))
	for i, r := range results {
		if answers[i].Appended = &r.Appended; r.err != nil {
			answers[i] = answered{Error: toProblem(r.err).In(answer.REST)}
		}
	}
	return answers, nil
}

// The public read port proves one leaf a request.

const (
	proofsPath    = "/v1/proofs"
	maxProofs     = 256             // most proofs of one request
	maxProofsBody = maxProofs * 256 // most bytes of a request
	maxWaiting    = 1 << 14         // most calls of one client that wait for a request
	proofRequests = 2               // most requests of one client at once
)

// provedLeaf names a leaf to prove.
type provedLeaf struct {
	LeafIndex int64  `json:"leaf_index"`
	Entry     string `json:"entry"` // 64 lower-case hex digits
}

// proved is a proof, or the error text that the read port would answer.
type proved struct {
	*Inclusion
	Error string `json:"error,omitempty"`
}

func (l *Log) serveProofs(r *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxProofsBody))
	var leaves []provedLeaf
	if err != nil || json.Unmarshal(body, &leaves) != nil || len(leaves) > maxProofs {
		return nil, problem.New(problem.InvalidJSON, "the body is not a list of at most %d leaves of the form {\"leaf_index\": integer, \"entry\": string}: correct it and send it again", maxProofs)
	}
	questions := make([]question, len(leaves))
	for i, leaf := range leaves {
		entry, err := canon.ParseHash(leaf.Entry)
		if err != nil {
			return nil, problem.New(problem.InvalidRequest, "entry has %v: send a SHA-256 digest in hex", err)
		}
		questions[i] = question{LeafQuery{LeafIndex: &leaf.LeafIndex, Entry: &entry}, []*int64{nil}}
	}
	read, err := l.reads.all(r.Context(), questions)
	if err != nil {
		return nil, l.checks.note(r.Context(), err)
	}
	all := make([]proved, len(leaves))
	for i, q := range questions {
		in, err := l.prove(r.Context(), q.leaf, read[i])
		if all[i].Inclusion = &in; l.checks.note(r.Context(), err) != nil {
			all[i] = proved{Error: toProblem(err).In(answer.REST)}
		}
	}
	return all, nil
}
