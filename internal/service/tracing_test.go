package service

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// What is wrong with tracing stops nothing and shows no secret.
func TestTracingSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	var text bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug - 100}))
	startTracing("a-binary", logger)()
	if text.Len() > 0 {
		t.Errorf("nothing names a collector: %s", text.String())
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=planted%zz,planted")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	startTracing("a-binary", logger)()
	for _, want := range []string{"http/protobuf", "OTEL_RESOURCE_ATTRIBUTES", "traces are sent"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "planted") {
		t.Errorf("a header is shown: %s", text.String())
	}
}
