package service

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"
)

// Malformed tracing settings stop nothing, and their log lines show no secret.
func TestTracingSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	var text bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug - 100}))
	startTracing("a-binary", logger)()
	if text.Len() > 0 {
		t.Errorf("no collector is configured: %s", text.String())
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

// The headers of a collector hold keys, so a collector inside the deployment is reached
// without HTTP_PROXY. net/http reads that variable once a process, so another process
// sends the spans. net/http uses no proxy for loopback addresses; 0.0.0.0 is not one of
// them, and nothing listens there.
func TestTheCollectorsHeadersGoToNoProxy(t *testing.T) {
	const inner = "FAIRPACT_TEST_BEHIND_A_PROXY"
	if os.Getenv(inner) != "" {
		var text bytes.Buffer
		flush := startTracing("a-binary", slog.New(slog.NewJSONHandler(&text, nil)))
		_, span := otel.Tracer("test").Start(context.Background(), "a span")
		span.End()
		flush()
		if !strings.Contains(text.String(), "lost") {
			t.Errorf("nothing listens there, and no span was lost: %s", text.String())
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

func TestErrorsOfGRPCAreLogged(t *testing.T) {
	var out bytes.Buffer
	logGRPC(slog.New(slog.NewJSONHandler(&out, nil)))
	grpclog.Info("a connection")
	grpclog.Error("too_many_pings")
	var line struct{ Level, Msg, Err string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "ERROR" || !bytes.Contains([]byte(line.Err), []byte("too_many_pings")) {
		t.Errorf("%v; want one line of the error:\n%s", err, out.Bytes())
	}
}

func TestReadSecrets(t *testing.T) {
	one, two := strings.Repeat("a", 16), strings.Repeat("b c ", 8)
	path := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string][]string{
		one: {one}, one + "\n": {one}, one + "\r\n" + two + "\n\n": {one, strings.TrimSpace(two)},
		"": nil, "\n": nil, one[1:]: nil, one + "\nshort": nil, one + "\n\n" + one: nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSecrets("SETTING", path)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "SETTING") || strings.Contains(err.Error(), one[:8])) {
			t.Errorf("%v: it names the setting, and shows no secret", err)
		}
	}
}
