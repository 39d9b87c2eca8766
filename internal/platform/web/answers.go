// Package web is the HTTP layer of the API ports: it routes and observes requests, and writes JSON
// answers and errors. On every port it also replaces the errors of net/http itself. The handlers
// of the admin port do not use it: they answer plain text.
package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

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

// refusalHeaders begin the errors that net/http writes for malformed requests, and no answer of a
// handler.
var refusalHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Listener accepts connections that replace the errors of net/http itself, such as the 400
// for a request that net/http cannot parse. The replacement has the JSON body of SPEC 7.1.
type Listener struct{ net.Listener }

// Accept implements net.Listener. It changes only TCP connections.
func (l Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if tcp, ok := accepted.(*net.TCPConn); ok {
		return conn{tcp}, err
	}
	return accepted, err
}

type conn struct{ *net.TCPConn }

func (c conn) Write(b []byte) (int, error) {
	p := refusal(b)
	if p == nil {
		return c.TCPConn.Write(b)
	}
	return len(b), Refuse(c.TCPConn, p)
}

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
