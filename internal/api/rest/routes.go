package rest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"time"

	"github.com/fairpact/fairpact/internal/platform/httpcache"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

type route struct {
	method string // empty means GET, which also serves HEAD
	serve  http.HandlerFunc
	public bool   // web pages of any origin may read the answer (CORS)
	cache  string // Cache-Control of a successful answer (see package httpcache); empty means no-store
}

func (rt route) verb() string { return cmp.Or(rt.method, http.MethodGet) }

func (rt route) handler() http.HandlerFunc {
	serve, allow := rt.serve, "OPTIONS, POST"
	reads := rt.verb() == http.MethodGet
	if reads {
		allow = "GET, HEAD, OPTIONS"
	}
	if rt.cache != "" {
		serve = httpcache.Handler(rt.cache, rt.serve)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == rt.verb(), reads && r.Method == http.MethodHead:
			if rt.public {
				allowAnyOrigin(w)
			}
			serve(w, r)
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			if rt.public {
				allowAnyOrigin(w)
				w.Header().Set("Access-Control-Allow-Methods", allow)
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", allow)
			web.Error(w, problem.New(problem.MethodNotAllowed, "%s is not served at this path; use one of %s", methodName(r.Method), allow))
		}
	}
}

const allowOrigin = "Access-Control-Allow-Origin"

func allowAnyOrigin(w http.ResponseWriter) { w.Header().Set(allowOrigin, "*") }

// methodName keeps a method that is too long to be real out of errors and log lines.
func methodName(method string) string {
	if len(method) > 16 {
		return "this method"
	}
	return method
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	web.Error(w, problem.New(problem.NotFound, "no such path; the paths are in GET /openapi.json"))
}

// cleanPath answers 404 to requests that http.ServeMux would answer with an HTML
// redirect or with an empty body.
func cleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path.Clean(r.URL.Path) || r.URL.Path == "*" || r.Method == http.MethodConnect {
			notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func fixed(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { web.JSON(w, http.StatusOK, body) }
}

// maxQuery bounds the query that deal-api passes to log-server, because log-server allows fewer
// bytes of request line and headers than deal-api does.
const maxQuery = 4 << 10 // bytes

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
			for _, set := range []string{telemetry.RequestIDHeader, allowOrigin} { // deal-api sets these headers itself
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

// observed adds log lines, metrics, limits and a deadline to every call. The log lines name the
// route. They show no query or body, and no header except a valid X-Request-Id. The deadline
// is limits.CallTime plus the result of waitOf, so a call ends even if the database hangs.
func (a *API) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		r, call := telemetry.Begin(w, r, true)
		wait := waitOf(r)
		if wait > 0 {
			_ = http.NewResponseController(w).SetWriteDeadline(began.Add(writeTimeout + wait)) // fails only in tests, where the ResponseWriter has no connection
		}
		ctx, cancel := context.WithTimeout(r.Context(), limits.CallTime+wait)
		defer cancel()
		r = r.WithContext(ctx)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rec := &recorder{ResponseWriter: w}
		rec.call, r = a.limits.Begin(rec, r, limits.Network(a.Callers.Address(r)))
		defer rec.call.End()
		defer func() {
			defer func() { call.End(routeOf(r), r.Method, cmp.Or(rec.status, http.StatusOK)) }()
			if fault := recover(); fault != nil {
				if fault == http.ErrAbortHandler {
					panic(fault)
				}
				a.Logger.ErrorContext(r.Context(), "panic", "route", r.Pattern, "fault", fault)
				if rec.status == 0 {
					web.Error(rec, problem.New(problem.Internal, "the service failed; send the same request again with the same Idempotency-Key, if any"))
				}
			}
			a.Logger.DebugContext(r.Context(), "request", "method", methodName(r.Method), "route", r.Pattern, "status", rec.status, "ms", time.Since(began).Milliseconds())
			if rec.status >= 500 || rec.status == http.StatusTooManyRequests {
				a.failures.Log(r.Context(), slog.LevelWarn, "requests fail", fmt.Sprintf("%d %s", rec.status, r.Pattern), "", "route", r.Pattern, "status", rec.status)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

func routeOf(r *http.Request) string {
	if r.Pattern == "/" { // no route matches: notFound answers
		return ""
	}
	return r.Pattern
}

type recorder struct {
	http.ResponseWriter
	status int
	call   *limits.Call
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
		r.call.ReleaseSlotAndBody()
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
