package service

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
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

// HTTP_PROXY is for what lies outside. A collector's headers hold keys and go to
// the collector alone. The variable is read once a process, so the spans are
// sent by one of their own. A proxy is never asked for the loopback's own
// addresses, but for this one, at which nobody answers.
func TestTheCollectorsHeadersGoToNoProxy(t *testing.T) {
	const inner = "FAIRPACT_TEST_BEHIND_A_PROXY"
	if os.Getenv(inner) != "" {
		var text bytes.Buffer
		flush := startTracing("a-binary", slog.New(slog.NewJSONHandler(&text, nil)))
		_, span := otel.Tracer("test").Start(context.Background(), "a span")
		span.End()
		flush()
		if !strings.Contains(text.String(), "lost") {
			t.Errorf("nobody answered, and no span was lost: %s", text.String())
		}
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy was sent %s %s, Api-Key: %q", r.Method, r.URL, r.Header.Get("Api-Key"))
	}))
	defer proxy.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), inner+"=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://0.0.0.0:1", "OTEL_EXPORTER_OTLP_HEADERS=api-key=planted")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
