package translog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	appendPath    = "/v1/append"
	maxAppendBody = 4096 // bytes
)

type appendRequest struct {
	Entry     string `json:"entry"`     // 64 lower-case hex digits
	Signature string `json:"signature"` // es256:…, over the entry
	Tag       string `json:"tag"`       // 64 lower-case hex digits
}

// AppendHandler serves the private append port. A caller must send one of the append secrets. Each request
// calls `secrets`, because they change during a rotation.
func (l *Log) AppendHandler(secrets func() []string) http.Handler {
	private := func(serve func(*http.Request) (any, error)) web.Route {
		return web.Route{Method: http.MethodPost, Serve: l.handle(func(r *http.Request) (any, error) {
			if err := authorize(r, secrets()); err != nil {
				return nil, err
			}
			return serve(r)
		})}
	}
	routes := web.Router(map[string]web.Route{appendPath: private(l.serveAppend), proofsPath: private(l.serveProofs)}, "this port serves "+appendPath+" and "+proofsPath)
	return web.Observed(l.checks.logger, telemetry.NewRepeats(l.checks.logger), false, func(w *web.Recorder, r *http.Request) { routes.ServeHTTP(w, r) })
}

// authorize compares the request's secret with those of `want` in constant time.
func authorize(r *http.Request, want []string) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return problem.New(problem.AuthRequired, "the request has no Bearer credential: send `Authorization: Bearer SECRET` with an append secret of the deployment")
	}
	got := sha256.Sum256([]byte(token))
	matches := 0
	for _, secret := range want {
		one := sha256.Sum256([]byte(secret))
		matches |= subtle.ConstantTimeCompare(got[:], one[:])
	}
	if matches != 1 {
		return problem.New(problem.InvalidCredential, "the Bearer secret is not an append secret of the deployment: set the same FAIRPACT_APPEND_SECRET_FILE for the log server and its callers")
	}
	return nil
}

func (l *Log) serveAppend(r *http.Request) (any, error) {
	if l.readOnly {
		return nil, problem.New(problem.ReadOnly, "the log is read-only for maintenance: send the same request again later").WithRetryAfter(10)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxAppendBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes: send only {\"entry\": …, \"signature\": …, \"tag\": …}", maxAppendBody)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body is incomplete: send it again")
	}
	var request appendRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body is not JSON of the form {\"entry\": string, \"signature\": string, \"tag\": string}: correct it and send it again")
	}
	entry, err := canon.ParseHash(request.Entry)
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "entry has %v: send a SHA-256 digest in hex", err)
	}
	if request.Signature == "" {
		return nil, problem.New(problem.InvalidRequest, "signature is missing: send the es256 signature over the digest in `entry`")
	}
	tag, err := canon.ParseHash(request.Tag)
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "tag has %v: send a SHA-256 digest in hex", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timelimits.Append)
	defer cancel()
	return l.Append(ctx, entry, request.Signature, tag)
}

// Concurrent calls of Client.Inclusion share one request for many proofs.

const (
	proofsPath    = "/v1/proofs"
	maxProofs     = 256             // in one request
	maxProofsBody = maxProofs * 256 // bytes of one request body
	proofRequests = 2               // concurrent requests of one client
)

type provedLeaf struct {
	LeafIndex int64  `json:"leaf_index"`
	Entry     string `json:"entry"` // 64 lower-case hex digits
}

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
	queries := make([]headLeafQuery, len(leaves))
	for i, leaf := range leaves {
		entry, err := canon.ParseHash(leaf.Entry)
		if err != nil {
			return nil, problem.New(problem.InvalidRequest, "entry has %v: send a SHA-256 digest in hex", err)
		}
		queries[i] = headLeafQuery{LeafQuery{LeafIndex: &leaf.LeafIndex, Entry: &entry}, []*int64{nil}}
	}
	read, errs := l.reads.Together(r.Context(), queries)
	if err := cmp.Or(errs...); err != nil {
		return nil, l.checks.recordFailure(r.Context(), err)
	}
	all := make([]proved, len(leaves))
	var group errgroup.Group
	group.SetLimit(maxLoads) // each proof may read tiles, and at most maxLoads callers read tiles at the same time
	for i, q := range queries {
		group.Go(func() error {
			in, err := l.prove(r.Context(), q.leaf, read[i])
			if all[i].Inclusion = &in; l.checks.recordFailure(r.Context(), err) != nil {
				all[i] = proved{Error: toProblem(err).In(problem.Call.REST)}
			}
			return nil
		})
	}
	_ = group.Wait()
	return all, nil
}

type plain struct {
	contentType string
	cache       string // Cache-Control
	body        []byte
}

// handle sends what `serve` returns: a plain, or a value as JSON.
func (l *Log) handle(serve func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := serve(r)
		if text, ok := body.(plain); ok && err == nil {
			w.Header().Set("Content-Type", text.contentType)
			w.Header().Set("Cache-Control", text.cache)
			w.Header().Set("Content-Length", strconv.Itoa(len(text.body)))
			_, _ = w.Write(text.body)
			return
		}
		if err == nil {
			var text []byte
			if text, err = web.Encode(body); err == nil {
				web.JSON(w, http.StatusOK, append(text, '\n'))
				return
			}
		}
		p := toProblem(err)
		if p.Status() >= 500 && r.Context().Err() == nil {
			l.checks.logger.WarnContext(r.Context(), "request failed", "route", r.Pattern, "code", string(p.Code), "err", err)
		}
		web.Error(w, p)
	}
}

func toProblem(err error) *problem.Error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	switch {
	case errors.Is(err, ErrInconsistent):
		return problem.New(problem.LogInconsistent, "the stored tree does not match its signed head: tell the operator of this deployment, who must find the cause before the log answers again").WithCause(err)
	case errors.Is(err, ErrNotFound):
		return problem.New(problem.LeafNotFound, "%s; ask with the leaf_index or entry of a published certificate, and with a tree_size greater than its leaf_index", detail(err, ErrNotFound)).WithCause(err)
	case errors.Is(err, errNoHead):
		return problem.New(problem.HeadNotFound, "%s; omit the size to get the newest head, or use the size of a head that this log has returned before", err).WithCause(err)
	case errors.Is(err, errNoCheckpoint):
		return problem.New(problem.CheckpointNotFound, "%s; send GET /v1/log/status to see whether this log publishes checkpoints, and the size of the newest one", err).WithCause(err)
	case errors.Is(err, errNoTile):
		return problem.New(problem.TileNotFound, "%s; fetch only tiles that the newest checkpoint covers (GET /checkpoint)", err).WithCause(err)
	case errors.Is(err, ErrRefused):
		return problem.New(problem.Forbidden, "%s; send the SHA-256 digest of a certificate's signing bytes, and the certificate's es256 signature by a key of the deployment", detail(err, ErrRefused)).WithCause(err)
	case errors.Is(err, ErrTagTaken):
		return problem.New(problem.TagTaken, "the log has another certificate of this deal, %s: do not send this certificate again; use `fairpactctl certificate adopt` to adopt the logged one", detail(err, ErrTagTaken)).WithCause(err)
	case errors.Is(err, ErrUnavailable):
		return problem.New(problem.Unavailable, "the log cannot answer now; send the same request again: repeating it never logs an entry twice").WithRetryAfter(1).WithCause(err)
	}
	return problem.From(err)
}

func detail(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

var (
	// ErrUnavailable is returned when the log, its database or its signer was out of reach. Call again.
	ErrUnavailable = errors.New("the transparency log is out of reach")

	// ErrRefused is returned when the log does not admit the entry. Do not repeat the call.
	ErrRefused = errors.New("the transparency log refused the entry")

	// ErrTagTaken is returned when the log has another entry under the tag. This is final.
	ErrTagTaken = errors.New("the transparency log has another entry under this tag")

	// ErrInconsistent is returned when the tables contradict each other or the signed head.
	ErrInconsistent = errors.New("the transparency log is inconsistent")

	// ErrNotFound is returned when the log has not published the requested head or checkpoint, or the head
	// of a proof covers no leaf with the requested index and entry.
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
