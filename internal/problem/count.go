package problem

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var counted = func() map[Code]prometheus.Counter {
	errors := promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_errors_total", Help: "Errors answered, over REST and MCP, by their code.",
	}, []string{"code"})
	rows := make(map[Code]prometheus.Counter, len(Table))
	for _, row := range Table {
		rows[row.Code] = errors.WithLabelValues(string(row.Code))
	}
	return rows
}()

// Count notes that the error is answered. Write does so by itself.
func (e *Error) Count() {
	if c, ok := counted[e.Code]; ok {
		c.Inc()
		return
	}
	counted[Internal].Inc()
}
