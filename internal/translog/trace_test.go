package translog

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fairpact/fairpact/internal/telemetry"
)

// Whoever reads the public port is a stranger, who decides nothing about what is
// sampled; the private port continues its callers' traces.
func TestWhoseTraceAPortJoins(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	defer func() { otel.SetTracerProvider(provider); otel.SetTextMapPropagator(propagator) }()
	telemetry.Trace()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	l := &Log{checks: checks{logger: quiet}}
	for name, port := range map[string]struct {
		http.Handler
		joins bool
	}{"read": {l.ReadHandler(), false}, "append": {l.AppendHandler(secret), true}} {
		r := httptest.NewRequest(http.MethodGet, "/nowhere", nil)
		const from = "0af7651916cd43dd8448eb211c80319c"
		r.Header.Set("Traceparent", "00-"+from+"-b7ad6b7169203331-01")
		port.ServeHTTP(httptest.NewRecorder(), r)
		ended := spans.Ended()
		if len(ended) == 0 {
			t.Fatal("no span")
		}
		span := ended[len(ended)-1]
		if joined := span.SpanContext().TraceID().String() == from; joined != port.joins || len(span.Links()) == 1 == port.joins {
			t.Errorf("%s port: joined %t, %d links", name, joined, len(span.Links()))
		}
	}
}
