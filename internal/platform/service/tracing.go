package service

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/version"
)

// flushTimeout bounds the export of the last spans. The sum of Health.Delay, DrainTimeout
// and flushTimeout MUST be shorter than the grace period of a pod.
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
