// Package service runs a binary: it listens, answers health checks, and drains before the
// process ends.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/grpclog"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Main calls `run` with a context that ends on SIGTERM or SIGINT. A second signal ends the
// process immediately. If `run` fails, the process exits with status 1. Logs are JSON lines on
// stderr.
func Main(name string, level slog.Level, run func(context.Context, *slog.Logger) error) {
	if os.Getenv("GOGC") == "" {
		paceCollections()
	}
	// Take the memory limit from the container, unless GOMEMLIMIT is set.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(0.9))
	logger := slog.New(telemetry.LogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	slog.SetDefault(logger)
	logGRPC(logger)
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

var readOnly = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "fairpact_read_only", Help: "1 if this process refuses all changes (FAIRPACT_READ_ONLY).",
})

// ReadOnly sets the metric of read-only mode to 1 and logs a warning if `on` is true.
func ReadOnly(on bool, logger *slog.Logger) {
	if on {
		readOnly.Set(1)
		logger.Warn("read-only: every change is refused; FAIRPACT_READ_ONLY is set")
	}
}

// Port is an address with its server.
type Port struct {
	Name    string
	Address string
	Server  *http.Server

	MaxConnections int                   // see limits.Connections; 0: not bounded
	Proxies        func(netip.Addr) bool // reports whether an address is a proxy; may be nil
}

func (p Port) listener(l net.Listener, repeats *telemetry.Repeats) net.Listener {
	l = web.Listener{Listener: l}
	if p.MaxConnections <= 0 {
		return l
	}
	refused := problem.New(problem.Overloaded, "this port has reached its limit of connections, in total or from your address; close those that you do not use and try again in a few seconds").WithRetryAfter(2)
	return limits.NewConnections(p.MaxConnections, p.Proxies, func(conn net.Conn) {
		_ = web.Refuse(conn, refused)
		repeats.Log(context.Background(), slog.LevelWarn, "connections refused", p.Name, "", "most", p.MaxConnections)
	}).Bound(l, p.Server)
}

// Headers of /readyz with the digests of Health.
const (
	KeySetHeader  = "Fairpact-Key-Set"
	SecretsHeader = "Fairpact-Server-Secrets" // #nosec G101 -- the name of a header
)

// Health answers /healthz with 200 while the process runs, and /readyz with 200 while the
// process does not drain and a check (NewHealth) succeeds. In an outage of the database the last
// check before it counts: the outage affects all replicas and a restart does not help, so the
// replicas stay in the Kubernetes Service and answer 503 to calls that need the database.
type Health struct {
	Delay   time.Duration // how long to keep serving after a stop is requested; set before Serve
	KeySet  string        // digest of this process's key set
	Secrets string        // digest of this process's server secrets; empty: the process has none

	ready    func(context.Context) error
	passed   atomic.Bool // whether the last check in which the database answered was successful
	draining atomic.Bool
	work     <-chan struct{} // closed when ServeBeside's `work` has returned; nil: ServeBeside was not called
}

// NewHealth returns a Health that checks readiness with `ready`. If the database does not
// answer, `ready` MUST return an error that wraps database.ErrNoAnswer.
func NewHealth(ready func(context.Context) error) *Health {
	return &Health{ready: ready}
}

// Handler returns the handler of the admin port.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		w.Header().Set(KeySetHeader, h.KeySet)
		w.Header().Set(SecretsHeader, h.Secrets)
		err := h.ready(ctx)
		away := errors.Is(err, database.ErrNoAnswer)
		if !away {
			h.passed.Store(err == nil)
		}
		switch {
		case h.draining.Load():
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case away && h.passed.Load():
			fmt.Fprintln(w, "ok, but", err)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.DefaultGatherer, promhttp.HandlerOpts{Timeout: 5 * time.Second, MaxRequestsInFlight: 4}))
	return mux
}

// AdminServer returns the server of the admin port.
func (h *Health) AdminServer() *http.Server {
	return &http.Server{Handler: h.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
}

// ReadSecrets reads a file of one or more lines, each with a secret of at least 16 bytes. Errors
// show `name`, the setting that holds the path.
func ReadSecrets(name, path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the file that %s names: %w", name, err)
	}
	var secrets []string
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		line = strings.TrimSpace(line)
		if len(line) < 16 {
			return nil, fmt.Errorf("%s: %s has a line of %d bytes: put at least 16 random bytes into each line", name, path, len(line))
		}
		secrets = append(secrets, line)
	}
	if secrets == nil {
		return nil, fmt.Errorf("%s: %s is empty: put at least 16 random bytes into it", name, path)
	}
	return secrets, nil
}
