package translog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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

// AppendHandler serves the private append port. A caller must send one of the append secrets.
func (l *Log) AppendHandler(secrets ...string) http.Handler {
	want := make([][32]byte, len(secrets))
	for i, secret := range secrets {
		want[i] = sha256.Sum256([]byte(secret))
	}
	private := func(serve func(*http.Request) (any, error)) web.Route {
		return web.Route{Method: http.MethodPost, Serve: l.handle(func(r *http.Request) (any, error) {
			if err := authorize(r, want); err != nil {
				return nil, err
			}
			return serve(r)
		})}
	}
	routes := web.Router(map[string]web.Route{appendPath: private(l.serveAppend), proofsPath: private(l.serveProofs)}, "this port serves "+appendPath+" and "+proofsPath)
	return web.Observed(l.checks.logger, telemetry.NewRepeats(l.checks.logger), false, func(w *web.Recorder, r *http.Request) { routes.ServeHTTP(w, r) })
}

// authorize checks the request's secret against `want`, the SHA-256 hashes of the valid secrets,
// in a time that depends on no secret.
func authorize(r *http.Request, want [][32]byte) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return problem.New(problem.AuthRequired, "the request has no Bearer credential: send `Authorization: Bearer SECRET` with an append secret of the deployment")
	}
	got := sha256.Sum256([]byte(token))
	matches := 0
	for _, one := range want {
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

// Concurrent calls of Client.Inclusion share one request for many proofs on the append port. The
// public read port serves one proof in each request.

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
