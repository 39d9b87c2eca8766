package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/caller"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/telemetry"
)

// route is what a path does, by method. HEAD is GET without its body.
type route map[string]http.HandlerFunc

func (m route) allow() string {
	methods := []string{http.MethodOptions}
	for method := range m {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

func (m route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	switch handler, ok := m[method]; {
	case ok:
		handler(w, r)
	case method == http.MethodOptions:
		w.Header().Set("Allow", m.allow())
		if _, reads := m[http.MethodGet]; reads {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", m.allow())
		answer.Error(w, problem.New(problem.MethodNotAllowed, "%s is not served at this path; use one of %s", methodName(r.Method), m.allow()))
	}
}

// methodName keeps a made-up method from filling an error.
func methodName(method string) string {
	if len(method) > 16 {
		return "this method"
	}
	return method
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	answer.Error(w, problem.New(problem.NotFound, "no such path; the paths are in GET /openapi.json"))
}

// cleanPath answers 404 where http.ServeMux would redirect with an HTML page, or answer nothing but a status.
func cleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path.Clean(r.URL.Path) || r.URL.Path == "*" || r.Method == http.MethodConnect {
			notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// public lets a page of any origin read the answer.
func public(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		next(w, r)
	}
}

func fixed(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer.JSON(w, http.StatusOK, body) }
}

// maxQuery is the most that is passed to log-server, whose bound of a header is
// lower than here: it would close the connection in the middle of its refusal.
const maxQuery = 4 << 10 // bytes

// logProxy passes /v1/log/ to log-server, so that one base URL serves the
// whole surface.
func logProxy(readURL string) (http.HandlerFunc, error) {
	target, err := url.Parse(readURL)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.RawQuery = r.In.URL.RawQuery                     // a parameter that cannot be read is refused, not dropped
			r.Out.Header = http.Header{"Accept": {"application/json"}} // no credential leaves deal-api
			telemetry.Propagate(r.In.Context(), r.Out.Header)
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(telemetry.RequestIDHeader) // the answer has it already
			return nil
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 10 * time.Second},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			p := problem.New(problem.LogUnavailable, "the transparency log is out of reach; call again in a few seconds").After(2).Because(err)
			w.Header().Set("Access-Control-Allow-Origin", "*") // as log-server does
			answer.Error(w, p)
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > maxQuery {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			answer.Error(w, problem.New(problem.InvalidRequest, "the query has %d bytes; send at most %d", len(r.URL.RawQuery), maxQuery))
			return
		}
		proxy.ServeHTTP(w, r)
	}, nil
}

// observed logs each call by its route, never with a header, query or body, and
// what fails or is refused for its rate at a level that is shown, once a minute;
// turns a panic into a 500, and bounds what a call takes beside its wait for a change:
// a database that hangs is out of reach.
func (a *API) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		r, call := telemetry.Begin(w, r, true)
		wait := waitOf(r)
		if wait > 0 {
			_ = http.NewResponseController(w).SetWriteDeadline(began.Add(writeTimeout + wait)) // a writer without a connection has none
		}
		ctx, cancel := context.WithTimeout(r.Context(), limits.CallTime+wait)
		defer cancel()
		r = r.WithContext(ctx)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rec := &recorder{ResponseWriter: w}
		rec.call, r = a.limits.Begin(rec, r, caller.Network(a.Callers.Address(r)), !strings.HasPrefix(r.URL.Path, "/v1/deals/"))
		defer rec.call.End()
		defer func() {
			defer func() { call.End(routeOf(r), r.Method, cmp.Or(rec.status, http.StatusOK)) }()
			if fault := recover(); fault != nil {
				if fault == http.ErrAbortHandler {
					panic(fault)
				}
				a.Logger.ErrorContext(r.Context(), "panic", "route", r.Pattern, "fault", fault)
				if rec.status == 0 {
					answer.Error(rec, problem.New(problem.Internal, "the service failed; send the same request again with the same Idempotency-Key"))
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

// routeOf is the pattern that served the call; empty where none did.
func routeOf(r *http.Request) string {
	if r.Pattern == "/" { // what is left over
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
		r.call.Written()
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write is the 200 of a handler that names no status.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
		r.call.Written()
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
