package web

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

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
