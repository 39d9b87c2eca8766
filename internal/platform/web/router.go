package web

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Route serves one path.
type Route struct {
	Method string // empty means GET, which also serves HEAD
	Serve  http.HandlerFunc
	Public bool         // web pages of any origin may read the answer (CORS)
	Cache  string       // Cache-Control of a successful answer; empty means no-store
	Whole  http.Handler // if set, serves all methods of the path, and the other fields have no effect
}

// Verb returns the method of a route.
func (rt Route) Verb() string { return cmp.Or(rt.Method, http.MethodGet) }

// Router serves routes by their paths, which are patterns of http.ServeMux. It answers OPTIONS,
// and answers other methods and paths with JSON errors. `help` says where the served paths are
// listed.
func Router(routes map[string]Route, help string) http.Handler {
	notFound := func(w http.ResponseWriter, _ *http.Request) {
		Error(w, problem.New(problem.NotFound, "no such path; %s", help))
	}
	mux := http.NewServeMux()
	for pattern, route := range routes {
		mux.Handle(pattern, route.handler())
		if strings.HasSuffix(pattern, "...}") { // http.ServeMux would redirect the path above
			mux.HandleFunc(path.Dir(pattern), notFound)
		}
	}
	mux.HandleFunc("/", notFound)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// http.ServeMux would answer such a path with an HTML redirect or with an empty body.
		if r.URL.Path != path.Clean(r.URL.Path) || r.URL.Path == "*" || r.Method == http.MethodConnect {
			notFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (rt Route) handler() http.HandlerFunc {
	if rt.Whole != nil {
		return rt.Whole.ServeHTTP
	}
	serve, allow := rt.Serve, "OPTIONS, POST"
	reads := rt.Verb() == http.MethodGet
	if reads {
		allow = "GET, HEAD, OPTIONS"
	}
	if rt.Cache != "" {
		serve = Cached(rt.Cache, rt.Serve)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if rt.Public {
			AllowAnyOrigin(w)
		}
		switch {
		case r.Method == rt.Verb(), reads && r.Method == http.MethodHead:
			serve(w, r)
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			if rt.Public {
				w.Header().Set("Access-Control-Allow-Methods", allow)
				w.Header().Set("Access-Control-Allow-Headers", "*")
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", allow)
			Error(w, problem.New(problem.MethodNotAllowed, "%s is not served at this path; use one of %s", methodName(r.Method), allow))
		}
	}
}

// AllowAnyOrigin lets web pages of any origin read the answer.
func AllowAnyOrigin(w http.ResponseWriter) { w.Header().Set("Access-Control-Allow-Origin", "*") }

// methodName keeps a method that is too long to be real out of errors and log lines.
func methodName(method string) string {
	if len(method) > 16 {
		return "this method"
	}
	return method
}

// Recorder notes the status of an answer.
type Recorder struct {
	http.ResponseWriter
	Status int    // 0: the answer has not begun
	Begins func() // called when the answer begins; may be nil
}

// WriteHeader notes the status and sends it.
func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 {
		r.Status = status
		if r.Begins != nil {
			r.Begins()
		}
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *Recorder) Write(b []byte) (int, error) {
	if r.Status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap returns the inner ResponseWriter, for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Observed adds a request id, a span, metrics and log lines to every call of `next`, and answers
// a panic with INTERNAL. `next` must leave the pattern of the route in its request. Log lines show
// the route, but no query, body or header except a valid X-Request-Id. For `outside` see
// telemetry.Begin.
func Observed(logger *slog.Logger, failures *telemetry.Repeats, outside bool, next func(*Recorder, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		r, call := telemetry.Begin(w, r, outside)
		rec := &Recorder{ResponseWriter: w}
		defer func() {
			defer func() {
				route := r.Pattern
				if route == "/" { // no route matches
					route = ""
				}
				call.End(route, r.Method, cmp.Or(rec.Status, http.StatusOK))
			}()
			if fault := recover(); fault != nil {
				if fault == http.ErrAbortHandler {
					panic(fault)
				}
				logger.ErrorContext(r.Context(), "panic", "route", r.Pattern, "fault", fault)
				if rec.Status == 0 {
					Error(rec, problem.New(problem.Internal, "the service failed; send the same request again with the same Idempotency-Key, if any"))
				}
			}
			logger.DebugContext(r.Context(), "request", "method", methodName(r.Method), "route", r.Pattern, "status", rec.Status, "ms", time.Since(began).Milliseconds())
			if rec.Status >= 500 || rec.Status == http.StatusTooManyRequests {
				failures.Log(r.Context(), slog.LevelWarn, "requests fail", fmt.Sprintf("%d %s", rec.Status, r.Pattern), "", "route", r.Pattern, "status", rec.Status)
			}
		}()
		next(rec, r)
	})
}
