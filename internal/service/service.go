// Package service is what all three binaries do alike: listen, say whether they
// are well, and finish what is under way before they stop.
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
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/grpclog"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/telemetry"
)

// DrainTimeout is how long requests under way may take once a stop is asked
// for; shorter than the grace period of a pod.
const DrainTimeout = 28 * time.Second

// Main runs a binary until SIGTERM or SIGINT and ends the process with 1 where
// it fails. A second signal ends it at once. Logs are JSON lines on stderr, those
// of libraries included; traces go where the environment says.
func Main(name string, level slog.Level, run func(context.Context, *slog.Logger) error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300) // heaps are tens of MiB: at 100 a tenth of the work is collecting them
	}
	// From the container's limit, unless GOMEMLIMIT is set or there is none.
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

// logGRPC makes gRPC's own errors log lines. Call it before gRPC is used.
func logGRPC(logger *slog.Logger) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, grpcErrors{logger}))
}

type grpcErrors struct{ logger *slog.Logger }

func (g grpcErrors) Write(line []byte) (int, error) {
	g.logger.Error("gRPC failed", "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

var readOnly = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "fairpact_read_only", Help: "1 where this process refuses all changes (FAIRPACT_READ_ONLY).",
})

// ReadOnly shows whether this process refuses all changes.
func ReadOnly(on bool, logger *slog.Logger) {
	if on {
		readOnly.Set(1)
		logger.Warn("read-only: every change is refused; FAIRPACT_READ_ONLY is set")
	}
}

// Port is an address and what is served there.
type Port struct {
	Name    string
	Address string
	Server  *http.Server

	MaxConnections int                   // open at once, see limits.Connections; 0: not bounded
	Proxies        func(netip.Addr) bool // reports whether an address may hold all of them; nil: none may
}

// listener accepts the port's connections.
func (p Port) listener(l net.Listener, repeats *telemetry.Repeats) net.Listener {
	l = answer.Listener{Listener: l}
	if p.MaxConnections <= 0 {
		return l
	}
	refused := problem.New(problem.Overloaded, "this port has as many connections as it takes, in all or of your address; close those that you do not use and try again in a few seconds").After(2)
	return limits.NewConnections(p.MaxConnections, p.Proxies, func(conn net.Conn) {
		_ = answer.Refuse(conn, refused)
		repeats.Log(context.Background(), slog.LevelWarn, "connections refused", p.Name, "", "most", p.MaxConnections)
	}).Bound(l, p.Server)
}

// KeySetHeader of /readyz names the key set of the process, SecretsHeader its set of
// server secrets.
const (
	KeySetHeader  = "Fairpact-Key-Set"
	SecretsHeader = "Fairpact-Server-Secrets"
)

// Health answers /healthz while the process runs and /readyz while it is fit to
// serve: the newest check that the database answered found nothing, and no stop was
// asked for. A database that is away changes no verdict: all replicas miss it, a
// restart does not bring it back, and a pod in the Service answers 503 with a
// reason and serves the pages that need no database. A process that starts is not
// ready without it.
type Health struct {
	// Delay is how long all is served as before once a stop is asked for. Set it,
	// if at all, before Serve.
	Delay time.Duration

	// KeySet names the key set of this process; /readyz tells it.
	KeySet string

	// Secrets names its set of server secrets likewise; empty: it has none.
	Secrets string

	ready    func(context.Context) error
	fit      atomic.Bool // the newest check that the database answered found nothing
	metrics  prometheus.Gatherer
	draining atomic.Bool
	failed   chan error      // holds one error of each port
	work     <-chan struct{} // closed when the work beside has ended; nil: there is none
}

// maxPorts are the most that a binary has.
const maxPorts = 8

// NewHealth makes a Health. ready returns an error that wraps database.ErrNoAnswer
// where the database does not answer.
func NewHealth(ready func(context.Context) error) *Health {
	return &Health{ready: ready, metrics: prometheus.DefaultGatherer, failed: make(chan error, maxPorts)}
}

// Measure serves more metrics beside those of the default registry; no metric
// may be in both.
func (h *Health) Measure(more prometheus.Gatherer) {
	h.metrics = prometheus.Gatherers{prometheus.DefaultGatherer, more}
}

// Handler is the handler of the admin port.
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
			h.fit.Store(err == nil)
		}
		switch {
		case h.draining.Load():
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case away && h.fit.Load():
			fmt.Fprintln(w, "ok, but", err)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	// All metrics are read from memory: a scrape asks nothing that could hang.
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{Timeout: 5 * time.Second, MaxRequestsInFlight: 4}))
	return mux
}

func listen(ports []Port) (listeners []net.Listener, err error) {
	for _, p := range ports {
		listener, err := net.Listen("tcp", p.Address)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("listen on the %s port: %w", p.Name, err)
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

func (h *Health) answer(logger *slog.Logger, ports []Port, listeners []net.Listener) {
	repeats := telemetry.NewRepeats(logger)
	for i, p := range ports {
		logger.Info("listening", "port", p.Name, "address", listeners[i].Addr().String())
		p.Server.Handler = h.parting(p.Server.Handler)
		go func() {
			if err := p.Server.Serve(p.listener(listeners[i], repeats)); !errors.Is(err, http.ErrServerClosed) {
				h.failed <- fmt.Errorf("serve the %s port: %w", p.Name, err)
			}
		}()
	}
}

// Serve answers on all ports, the admin port first, until ctx ends or one of them
// fails. Readiness goes first; after Delay the requests under way are finished.
func (h *Health) Serve(ctx context.Context, logger *slog.Logger, ports ...Port) error {
	listeners, err := listen(ports)
	if err != nil {
		return err
	}
	h.answer(logger, ports, listeners)
	var cause error
	select {
	case <-ctx.Done():
		logger.Info("draining", "delay", h.Delay.String())
		h.draining.Store(true)
		cause = h.linger(h.failed)
	case cause = <-h.failed:
	}
	h.draining.Store(true)
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
	defer cancel()
	// The admin port tells of the others to the end. Those close together: none takes
	// new requests while another finishes its own.
	first := min(1, len(ports))
	return errors.Join(cause, shut(finish, ports[first:]), shut(finish, ports[:first]))
}

// shut closes ports to new requests at once, and waits until those under way are
// finished or ctx ends, which cuts them.
func shut(ctx context.Context, ports []Port) error {
	errs := make([]error, len(ports))
	var all sync.WaitGroup
	for i, p := range ports {
		all.Go(func() {
			if err := p.Server.Shutdown(ctx); err != nil {
				errs[i] = fmt.Errorf("drain the %s port: %w", p.Name, err)
				_ = p.Server.Close()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// AdminServer serves /healthz, /readyz and /metrics.
func (h *Health) AdminServer() *http.Server {
	return &http.Server{Handler: h.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
}

// ReadSecrets reads secrets of 16 bytes or more from the lines of a file; name is
// the setting that the file comes from.
func ReadSecrets(name, path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	var secrets []string
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		line = strings.TrimSpace(line)
		if len(line) < 16 {
			return nil, fmt.Errorf("%s: %s has a line of %d bytes: put 16 random ones or more into each line", name, path, len(line))
		}
		secrets = append(secrets, line)
	}
	if secrets == nil {
		return nil, fmt.Errorf("%s: %s is empty: put 16 random bytes or more into it", name, path)
	}
	return secrets, nil
}
