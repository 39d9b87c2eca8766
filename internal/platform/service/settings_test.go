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

	"github.com/alecthomas/kong"
	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"
)

// Malformed tracing settings do not stop the process, and their log lines show no secret.
func TestTracingSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	var text bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug - 100}))
	startTracing("a-binary", logger)()
	if text.Len() > 0 {
		t.Errorf("without a collector: logged %s, want nothing", text.String())
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=planted%zz,planted")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	startTracing("a-binary", logger)()
	for _, want := range []string{"http/protobuf", "OTEL_RESOURCE_ATTRIBUTES", "tracing enabled"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("logged %s, want a line with %q", text.String(), want)
		}
	}
	if strings.Contains(text.String(), "planted") {
		t.Errorf("the log shows a header of the collector: %s", text.String())
	}
}

// Requests to a collector hold keys in their headers. Over http a proxy could read these keys, so
// the exporter does not use HTTP_PROXY if the collector's URL is http. net/http reads
// HTTP_PROXY only once, so the test starts another process. The collector's address is 0.0.0.0,
// because net/http never uses a proxy for a loopback address. No process listens on the
// collector's port.
func TestTheCollectorsHeadersGoToNoProxy(t *testing.T) {
	const inner = "FAIRPACT_TEST_BEHIND_A_PROXY"
	if os.Getenv(inner) != "" {
		var text bytes.Buffer
		flush := startTracing("a-binary", slog.New(slog.NewJSONHandler(&text, nil)))
		_, span := otel.Tracer("test").Start(context.Background(), "a span")
		span.End()
		flush()
		if !strings.Contains(text.String(), "lost") {
			t.Errorf("logged %s, want a line that a span was lost, because nothing listens", text.String())
		}
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy received %s %s with Api-Key %q, want no request", r.Method, r.URL, r.Header.Get("Api-Key"))
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
		t.Errorf("the process with HTTP_PROXY failed: %v\n%s", err, out)
	}
}

func TestErrorsOfGRPCAreLogged(t *testing.T) {
	var out bytes.Buffer
	logGRPC(slog.New(slog.NewJSONHandler(&out, nil)))
	grpclog.Info("a connection")
	grpclog.Error("too_many_pings")
	var line struct{ Level, Msg, Err string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "ERROR" || !bytes.Contains([]byte(line.Err), []byte("too_many_pings")) {
		t.Errorf("logged %s (%v), want one line with the error too_many_pings", out.Bytes(), err)
	}
}

func TestAppendSecrets(t *testing.T) {
	one, two := strings.Repeat("a", 16), strings.Repeat("b c ", 8)
	path := filepath.Join(t.TempDir(), "secret")
	var used []string
	write := func(text string) (read []string, file File, err error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return AppendSecrets(path, func(changed []string) { used = changed })
	}
	for text, want := range map[string][]string{
		one: {one}, one + "\n": {one}, one + "\r\n" + two + "\n\n": {one, strings.TrimSpace(two)},
		"": nil, "\n": nil, one[1:]: nil, one + "\nshort": nil, one + "\n\n" + one: nil,
	} {
		got, _, err := write(text)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) || used != nil {
			t.Errorf("AppendSecrets of %q = %q, %v, and changed to %q; want %q and no change", text, got, err, used, want)
		}
		if err != nil && (!strings.Contains(err.Error(), "FAIRPACT_APPEND_SECRET_FILE") || strings.Contains(err.Error(), one[:8])) {
			t.Errorf("AppendSecrets: got error %v, want one that names the setting and shows no secret", err)
		}
	}
	_, file, err := write(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text    string
		changed bool
		used    []string
	}{{one + "\n", false, nil}, {"short", false, nil}, {two, true, []string{strings.TrimSpace(two)}}, {two, false, nil}} {
		used = nil
		changed, err := file.Use(t.Context(), []byte(step.text))
		if changed != step.changed || !slices.Equal(used, step.used) || (err != nil) != (step.text == "short") {
			t.Errorf("Use(%q) = %v, %v, and used %q; want %v and %q", step.text, changed, err, used, step.changed, step.used)
		}
	}
}

func TestVariablesThatNothingReads(t *testing.T) {
	var settings struct {
		Keys int `env:"FAIRPACT_KEYS_PER_MINUTE"`
	}
	parser, err := kong.New(&settings)
	if err != nil {
		t.Fatal(err)
	}
	got := unread(parser.Model.AllFlags(false), []string{"FAIRPACT_KEYS_PER_MINUTE=1", "FAIRPACT_KEYS_PER_MIN=2", "FAIRPACT_E2E_BIN=x", "HOME=/"})
	if !slices.Equal(got, []string{"FAIRPACT_KEYS_PER_MIN"}) {
		t.Errorf("variables that nothing reads: %v, want FAIRPACT_KEYS_PER_MIN", got)
	}
}
