package translog

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

type route struct {
	methods string // the Allow header
	serve   func(*http.Request) (any, error)
}

// routes maps the paths of a port to their routes. A path that ends with a slash matches
// all paths below it. Request paths are neither cleaned nor redirected.
type routes map[string]route

func (rs routes) find(path string) string {
	for name := range rs {
		if below := strings.HasSuffix(name, "/"); below && path != name && strings.HasPrefix(path, name) || !below && path == name {
			return name
		}
	}
	return ""
}

type plain struct {
	contentType string
	cache       string // Cache-Control
	body        []byte
}

// handler serves the routes. On a public port the span only links to the caller's trace
// and does not join it.
func (rs routes) handler(logger *slog.Logger, public bool) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		route := rs.find(r.URL.Path)
		found := rs[route]
		began, w := time.Now(), &recorder{ResponseWriter: out, status: http.StatusOK}
		r, call := telemetry.Begin(w, r, public)
		defer func() {
			call.End(route, r.Method, w.status)
			if logger.Enabled(r.Context(), slog.LevelDebug) {
				logger.DebugContext(r.Context(), "request", "route", route, "status", w.status, "ms", time.Since(began).Milliseconds())
			}
		}()
		switch {
		case route == "":
			web.Error(w, problem.New(problem.NotFound, "this port does not serve the path %.100q; use one of %s", r.URL.Path, strings.Join(slices.Sorted(maps.Keys(rs)), ", ")))
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", found.methods)
			w.WriteHeader(http.StatusNoContent)
		case !strings.Contains(", "+found.methods+",", ", "+r.Method+","):
			w.Header().Set("Allow", found.methods)
			web.Error(w, problem.New(problem.MethodNotAllowed, "this path accepts only %s; send one of these methods to %s", found.methods, r.URL.Path))
		default:
			body, err := found.serve(r)
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
				logger.WarnContext(r.Context(), "request failed", "route", route, "code", string(p.Code), "err", err)
			}
			web.Error(w, p)
		}
	})
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

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
