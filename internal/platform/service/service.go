// Package service runs a binary: it listens, answers health checks, and drains before the
// process ends.
package service

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kong"
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/grpclog"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/version"
)

// binary is the name of this process's binary. Main sets it.
var binary string

// Main reads the settings, of which `level` is one, from flags and environment. Then it calls `run`
// with a context that ends on SIGTERM or SIGINT. A second signal ends the process immediately. If
// `run` fails, the process exits with status 1. Logs are JSON lines on stderr.
func Main(name, about string, settings any, level *slog.Level, run func(context.Context, *slog.Logger) error) {
	parsed := kong.Parse(settings, kong.Name(name), kong.Description(about))
	if os.Getenv("GOGC") == "" {
		paceCollections()
	}
	// Take the memory limit from the container, unless GOMEMLIMIT is set.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(0.9))
	logger := slog.New(telemetry.LogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: *level})))
	slog.SetDefault(logger)
	for _, variable := range unread(parsed.Model.AllFlags(false), os.Environ()) {
		logger.Warn("this process does not read the variable: check its name", "variable", variable)
	}
	logGRPC(logger)
	binary = name
	telemetry.Binary(name)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	flush := startTracing(name, logger)
	err := run(ctx, logger)
	stop()
	flush()
	if err != nil {
		logger.Error("stopped", "err", err)
		os.Exit(1)
	}
}

// unread returns the names of the FAIRPACT_ variables that no flag reads, except those of tests.
func unread(groups [][]*kong.Flag, environ []string) (names []string) {
	read := map[string]bool{"FAIRPACT_CRASH_AT": true, "FAIRPACT_CLOCK_OFFSET": true}
	for _, group := range groups {
		for _, flag := range group {
			for _, name := range flag.Envs {
				read[name] = true
			}
		}
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if rest, ours := strings.CutPrefix(name, "FAIRPACT_"); ours && !read[name] && !strings.HasPrefix(rest, "E2E_") && !strings.HasPrefix(rest, "TEST_") {
			names = append(names, name)
		}
	}
	return names
}

// logGRPC logs the errors of gRPC. Call it before the first use: gRPC reads its logger without a
// lock.
func logGRPC(logger *slog.Logger) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, grpcErrors{logger}))
}

type grpcErrors struct{ logger *slog.Logger }

func (g grpcErrors) Write(line []byte) (int, error) {
	g.logger.Error("gRPC failed", "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

var readOnly = telemetry.NewGauge("fairpact_read_only", "1 if this process refuses all changes (FAIRPACT_READ_ONLY).")

// ReadOnly sets the metric of read-only mode to 1 and logs a warning if `on` is true.
func ReadOnly(on bool, logger *slog.Logger) {
	if on {
		readOnly.Set(1)
		logger.Warn("read-only: every change is refused; FAIRPACT_READ_ONLY is set")
	}
}

// AppendSecrets reads the file of FAIRPACT_APPEND_SECRET_FILE, which has one or more lines, each with a secret of
// at least 16 bytes. It returns the secrets, and a File that passes each change of them to `use`.
func AppendSecrets(path string, use func([]string)) ([]string, File, error) {
	const name = "FAIRPACT_APPEND_SECRET_FILE"
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, File{}, fmt.Errorf("cannot read the file that %s names: %w", name, err)
	}
	now, err := parseSecrets(name, path, text)
	return now, File{Setting: name, Path: path, Use: func(_ context.Context, text []byte) (bool, error) {
		changed, err := parseSecrets(name, path, text)
		if err != nil || slices.Equal(changed, now) {
			return false, err
		}
		now = changed
		use(changed)
		return true, nil
	}}, err
}

func parseSecrets(name, path string, text []byte) (secrets []string, err error) {
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		line = strings.TrimSpace(line)
		if len(line) < 16 {
			return nil, fmt.Errorf("%s: %s has a line of %d bytes: put at least 16 random bytes into each line", name, path, len(line))
		}
		secrets = append(secrets, line)
	}
	return secrets, nil
}

const (
	maxName    = 63 // bytes; the longest application_name that Postgres stores
	namePrefix = "fairpact/"
	noSecrets  = "-"
)

// ApplicationName returns the application_name of a process: fairpact/BINARY/KEYSET/SECRETS/HOST.PID.
// KEYSET and SECRETS are digests; SECRETS is "-" if the process has no server secrets. If HOST.PID
// is too long, its start is cut off, because the host names of pods differ at the end.
func ApplicationName(binary, keySet, secrets string) string {
	host, _ := os.Hostname()
	name := namePrefix + binary + "/" + keySet + "/" + cmp.Or(secrets, noSecrets) + "/"
	self := fmt.Sprintf("%s.%d", host, os.Getpid())
	return name + self[max(0, len(self)-(maxName-len(name))):]
}

// Process is a parsed application_name. KeySet and Secrets are digests. Secrets is empty if
// the process has no server secrets. Host ends with the PID.
type Process struct{ Binary, KeySet, Secrets, Host string }

// ParseApplicationName reports whether the name has the form that ApplicationName returns.
func ParseApplicationName(name string) (p Process, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(name, namePrefix), "/", 4)
	if !strings.HasPrefix(name, namePrefix) || len(parts) != 4 {
		return p, false
	}
	return Process{Binary: parts[0], KeySet: parts[1], Secrets: strings.TrimPrefix(parts[2], noSecrets), Host: parts[3]}, true
}

// smallHeap is the size, garbage included, to which a small heap may grow. GOGC=100 would collect
// a heap of tens of MiB so often that it takes a tenth of the CPU time. A higher constant GOGC
// would let large heaps grow too much.
const smallHeap = 96 << 20

// collection is garbage at once. So its finalizer runs after each garbage collection.
type collection struct{ _ [64]byte }

// paceCollections sets GOGC now and after each collection: from 400 for the smallest heaps down
// to 100 for live heaps of smallHeap/2 or more.
func paceCollections() {
	// The next collection starts at live + (live + stacks + globals) * GOGC/100, which is to be
	// close to smallHeap.
	sizes := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	var pace func(*collection)
	pace = func(c *collection) {
		metrics.Read(sizes)
		live, scanned := int64(sizes[0].Value.Uint64()), int64(1)
		for _, size := range sizes {
			scanned += int64(size.Value.Uint64())
		}
		debug.SetGCPercent(int(min(400, max(100, 100*(smallHeap-live)/scanned))))
		runtime.SetFinalizer(c, pace)
	}
	pace(new(collection))
}

// flushTimeout bounds the export of the last spans.
const flushTimeout = 2 * time.Second

// startTracing exports spans to an OTLP/HTTP collector, as the standard environment variables
// OTEL_… say. A full queue drops spans, so a collector that hangs delays no call. flush exports
// the remaining spans.
func startTracing(name string, logger *slog.Logger) (flush func()) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return func() {}
	}
	otel.SetLogger(logr.Discard())                              // the default logger would log a malformed header, and headers hold keys
	complain := rate.Sometimes{First: 1, Interval: time.Minute} // many batches can fail
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		complain.Do(func() { logger.Warn("traces are lost", "err", err) })
	}))
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithProxy(collectorsProxy))
	if err != nil {
		logger.Warn("no traces are sent", "err", err)
		return func() {}
	}
	if protocol := os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		logger.Warn("traces are sent only over http/protobuf: use the collector's HTTP port, usually 4318", "OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	}
	host, _ := os.Hostname()
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", name), attribute.String("service.version", version.String()), attribute.String("service.instance.id", host),
	), resource.WithFromEnv())
	if err != nil {
		logger.Warn("OTEL_RESOURCE_ATTRIBUTES is malformed", "err", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	telemetry.Trace()
	logger.Info("tracing enabled")
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("the last traces are lost", "err", err)
		}
	}
}

// collectorsProxy returns no proxy for an http URL: it could read the keys in the headers.
func collectorsProxy(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme == "http" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}
