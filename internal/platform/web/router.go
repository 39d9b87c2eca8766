// Package web is the HTTP layer of the API ports: it routes and observes requests, and writes JSON
// answers and errors. On every port it also replaces the errors of net/http itself. The handlers
// of the admin port do not use it: they answer plain text.
package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Route serves one path.
type Route struct {
	Method string // empty means GET, which also serves HEAD
	Serve  http.HandlerFunc
	Head   http.HandlerFunc // serves HEAD; nil: Serve does
	Public bool             // web pages of any origin may read the answer (CORS)
	Cache  string           // Cache-Control of a successful answer; empty means no-store
	Whole  http.Handler     // if set, serves all methods of the path, and the other fields have no effect
}

// Verb returns the method of a route.
func (rt Route) Verb() string { return cmp.Or(rt.Method, http.MethodGet) }

// Router serves routes by their paths, which are patterns of http.ServeMux. It answers OPTIONS,
// and answers other methods and paths with JSON errors. `help` says where the served paths are
// listed. A route "/" answers the unknown paths instead.
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
	if _, given := routes["/"]; !given {
		mux.HandleFunc("/", notFound)
	}
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
		case r.Method == http.MethodHead && rt.Head != nil:
			rt.Head(w, r)
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
	unread func() // called when the answer begins; nil: the request has no body
}

// WriteHeader notes the status and sends it.
func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 {
		r.Status = status
		if r.unread != nil {
			r.unread()
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
		own := r          // net/http's, which looks at its Body
		own.Trailer = nil // as in requestBody
		r, call := telemetry.Begin(w, r, outside)
		rec := &Recorder{ResponseWriter: w}
		if r.ContentLength != 0 {
			body := &requestBody{ReadCloser: r.Body, of: own}
			r.Body = body
			rec.unread = func() { body.leave(w) }
		}
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

var errorsTotal = telemetry.NewCounterVec("fairpact_errors_total", "Errors answered over REST and MCP, by code.", "code")

func init() {
	// Without a series at 0, increase() in Prometheus misses the first error of a code.
	for _, row := range problem.Table {
		errorsTotal.WithLabelValues(string(row.Code))
	}
}

// Count counts an answered error. Error and Refuse call Count; a caller that writes an error in
// another way must call it.
func Count(e *problem.Error) { errorsTotal.WithLabelValues(string(e.Code)).Inc() }

// Encode returns v as JSON without HTML escapes.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// JSON writes a status and an encoded body, which MUST NOT change afterwards, with Cache-Control no-store unless that is set.
func JSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	if kept, ok := w.(*answer); ok && kept.status == 0 {
		kept.status, kept.body = status, slices.Clip(body)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Error writes `{"error": "CODE: fix"}` with the error's status (SPEC 7.1), and counts the
// error. The fix names API calls by REST method and path. If err wraps no problem.Error, the
// code is INTERNAL.
func Error(w http.ResponseWriter, err error) {
	p := problem.From(err)
	Count(p)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if p.Status() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	JSON(w, p.Status(), body(p))
}

func body(p *problem.Error) []byte {
	text, _ := Encode(map[string]string{"error": p.In(problem.Call.REST)}) // encoding a map of strings cannot fail
	return append(text, '\n')
}

// refusalHeaders begin the errors that net/http writes for malformed requests, and no answer of a
// handler.
var refusalHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Refuse counts an error and writes it as an HTTP/1.1 answer to a connection that no
// handler serves. The caller must close the connection afterwards.
func Refuse(conn net.Conn, p *problem.Error) error {
	Count(p)
	wait := ""
	if p.RetryAfter > 0 {
		wait = fmt.Sprintf("Retry-After: %d\r\n", p.RetryAfter)
	}
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%sConnection: close\r\n\r\n%s",
		p.Status(), http.StatusText(p.Status()), wait, body(p))
	return err
}

// refusal returns the error to send instead of an answer, or nil if a handler wrote the answer.
func refusal(answer []byte) *problem.Error {
	if !bytes.HasPrefix(answer, []byte("HTTP/1.")) {
		return nil
	}
	line, _, _ := bytes.Cut(answer, []byte("\r\n"))
	_, status, _ := strings.Cut(string(line), " ")
	switch expectation := status == "417 Expectation Failed" && len(line) < len(answer); { // no handler answers with 417
	case !expectation && !bytes.HasPrefix(answer[len(line):], refusalHeaders):
		return nil
	case strings.HasPrefix(status, "431 "):
		return problem.New(problem.HeadersTooLarge, "the path and headers together exceed the limit of this port; shorten the path, or send fewer or shorter headers")
	case expectation || strings.HasPrefix(status, "501 "):
		return problem.New(problem.InvalidRequest, "the value of the Expect or Transfer-Encoding header is not supported; leave the header out")
	}
	what := "the request line or a header cannot be read"
	if _, detail, ok := strings.Cut(status, ": "); ok {
		what = detail
	}
	return problem.New(problem.InvalidRequest, "%s; send HTTP/1.1 with a percent-encoded path, one Host header and well-formed headers", what)
}
