package mcp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

var (
	toolCalls = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_mcp_tool_calls_total", Help: "Tool calls by outcome: ok, refused (the caller can correct the call) or failed (a fault of the service).",
	}, []string{"tool", "outcome"})
	toolDurations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_mcp_tool_duration_seconds", Help: "Time to answer a tool call, not counting the time that the call waited for its deal to change.", Buckets: telemetry.Seconds,
	}, []string{"tool"})
)

// zeroMetrics creates the series of a tool, so that they are 0 before the first call.
func zeroMetrics(tool string) {
	for _, outcome := range []string{"ok", "refused", "failed"} {
		toolCalls.WithLabelValues(tool, outcome)
	}
	toolDurations.WithLabelValues(tool)
}

func countCall(tool string, code problem.Code, took time.Duration) {
	outcome := "refused"
	switch row, _ := problem.Lookup(code); {
	case code == "":
		outcome = "ok"
	case row.Status >= 500:
		outcome = "failed"
	}
	toolCalls.WithLabelValues(tool, outcome).Inc()
	toolDurations.WithLabelValues(tool).Observe(took.Seconds())
}
