package rest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const maxQuery = 4 << 10 // bytes: log-server allows a shorter request line than deal-api

// logProxy forwards reads of the log to log-server, so that one base URL serves all paths.
func (a *API) logProxy(readURL string) (http.HandlerFunc, error) {
	target, err := url.Parse(readURL)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Body, r.Out.ContentLength = nil, 0                   // a GET needs no body
			r.Out.URL.RawQuery = r.In.URL.RawQuery                     // ReverseProxy would drop a malformed parameter; log-server answers 400 to it
			r.Out.Header = http.Header{"Accept": {"application/json"}} // no credential leaves deal-api
			telemetry.Propagate(r.In.Context(), r.Out.Header)
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, set := range []string{telemetry.RequestIDHeader, "Access-Control-Allow-Origin"} { // deal-api sets these headers itself
				resp.Header.Del(set)
			}
			return nil
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 10 * time.Second},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			a.fail(w, r, problem.New(problem.LogUnavailable, "the transparency log is out of reach; call again in a few seconds").WithRetryAfter(2).WithCause(err))
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > maxQuery {
			web.Error(w, problem.New(problem.InvalidRequest, "the query has %d bytes; send at most %d", len(r.URL.RawQuery), maxQuery))
			return
		}
		proxy.ServeHTTP(w, r)
	}, nil
}

// observed adds limits and a deadline to every call, so that it ends even if the database hangs.
func (a *API) observed(next http.Handler) http.Handler {
	return web.Observed(a.Logger, a.failures, true, func(w *web.Recorder, r *http.Request) {
		wait := waitOf(r)
		if wait > 0 {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timelimits.Write + wait)) // fails only in tests, where the ResponseWriter has no connection
		}
		ctx, cancel := context.WithTimeout(r.Context(), timelimits.Call+wait)
		defer cancel()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		call, limited := a.limits.Begin(w, r.WithContext(ctx), limits.Network(a.Callers.Address(r)))
		defer call.End()
		w.Begins = call.ReleaseSlotAndBody
		defer func() { r.Pattern = limited.Pattern }()
		next.ServeHTTP(w, limited)
	})
}
