package translog

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

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
