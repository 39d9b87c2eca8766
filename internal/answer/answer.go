// Package answer writes JSON answers and errors over HTTP, the same way on every
// port.
package answer

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/problem"
)

var counted = func() map[problem.Code]prometheus.Counter {
	errors := promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_errors_total", Help: "Errors answered over REST and MCP, by code.",
	}, []string{"code"})
	rows := make(map[problem.Code]prometheus.Counter, len(problem.Table))
	for _, row := range problem.Table {
		rows[row.Code] = errors.WithLabelValues(string(row.Code))
	}
	return rows
}()

// Count counts an error that a caller is shown. Error counts by itself.
func Count(e *problem.Error) {
	c, ok := counted[e.Code]
	if !ok {
		c = counted[problem.Internal]
	}
	c.Inc()
}

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

// JSON writes an encoded body. It is not to be stored by caches unless the
// handler has said otherwise.
func JSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Error writes the error's status and `{"error": "CODE: fix"}` in the words of
// REST (SPEC 7.1), and counts it.
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
	JSON(w, p.Status(), text(p))
}

func text(p *problem.Error) []byte {
	body, _ := Encode(map[string]string{"error": p.In(REST)}) // a map of strings always encodes
	return append(body, '\n')
}

// REST names a call by its method and path.
func REST(c problem.Call) string {
	deal := c.DealID
	if deal == "" {
		deal = "{id}"
	}
	switch c.Op {
	case problem.CreateKey:
		return "POST /v1/keys"
	case problem.ListAlgorithms:
		return "GET /v1/algorithms"
	case problem.CreateDeal:
		return "POST /v1/deals"
	case problem.ReadDeal:
		return "GET /v1/deals/" + deal
	case problem.ReadDeclaration:
		return "GET /v1/deals/" + deal + "/declaration"
	case problem.Commit:
		return "POST /v1/deals/" + deal + "/commit"
	case problem.Reveal:
		return "POST /v1/deals/" + deal + "/reveal"
	case problem.Draw:
		return "POST /v1/deals/" + deal + "/entropy"
	case problem.ReadCertificate:
		return "GET /v1/deals/" + deal + "/certificate"
	case problem.Verify:
		return "GET /v1/verify/{cert_id}"
	case problem.IdempotencyKey:
		return "Idempotency-Key"
	}
	return c.String()
}
