// Package web is the HTTP layer of the API ports: it routes and observes requests, and writes JSON
// answers and errors. On every port it also replaces the errors of net/http itself. The handlers
// of the admin port do not use it: they answer plain text.
package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

var errorsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "fairpact_errors_total", Help: "Errors answered over REST and MCP, by code.",
}, []string{"code"})

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

// JSON writes a status and an encoded body, with Cache-Control no-store unless that is set.
func JSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
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
