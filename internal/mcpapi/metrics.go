package mcpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/telemetry"
)

var (
	toolCalls = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_mcp_tool_calls_total", Help: "Tool calls by outcome: ok, refused (the caller can correct the call) or failed (a fault of the service).",
	}, []string{"tool", "outcome"})
	toolDurations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_mcp_tool_duration_seconds", Help: "Time to answer a tool call, without what it waited for a change of its deal.", Buckets: telemetry.Seconds,
	}, []string{"tool"})
)

// measures holds the metrics of one tool.
type measures struct {
	ok, refused, failed prometheus.Counter
	duration            prometheus.Observer
}

func measure(tool string) measures {
	return measures{
		toolCalls.WithLabelValues(tool, "ok"), toolCalls.WithLabelValues(tool, "refused"), toolCalls.WithLabelValues(tool, "failed"),
		toolDurations.WithLabelValues(tool),
	}
}

// call counts a call that ended with an error code; empty: success.
func (m measures) call(code problem.Code, took time.Duration) {
	switch row, _ := problem.Lookup(code); {
	case code == "":
		m.ok.Inc()
	case row.Status >= 500:
		m.failed.Inc()
	default:
		m.refused.Inc()
	}
	m.duration.Observe(took.Seconds())
}
