package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

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

// DrainTimeout limits how long a stopping process waits for the requests in flight. It is
// shorter than the grace period of a pod.
const DrainTimeout = 28 * time.Second

// Serve serves all ports until ctx ends or a port fails. The first port is the admin port.
//
// When ctx ends, /readyz fails, and all ports answer for h.Delay more, while load balancers
// notice. Each answer closes its connection, so that clients move to other replicas. Then the
// ports finish the requests in flight and close, the admin port last.
func (h *Health) Serve(ctx context.Context, logger *slog.Logger, ports ...Port) error {
	var listeners []net.Listener
	for _, p := range ports {
		listener, err := net.Listen("tcp", p.Address)
		if err != nil {
			for _, opened := range listeners {
				_ = opened.Close()
			}
			return fmt.Errorf("cannot listen on the %s port: %w", p.Name, err)
		}
		listeners = append(listeners, listener)
	}
	repeats, failed := telemetry.NewRepeats(logger), make(chan error, len(ports))
	for i, p := range ports {
		logger.Info("listening", "port", p.Name, "address", listeners[i].Addr().String())
		p.Server.Handler = h.closing(p.Server.Handler)
		go func() {
			if err := p.Server.Serve(p.listener(listeners[i], repeats)); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("cannot serve the %s port: %w", p.Name, err)
			}
		}()
	}
	var cause error
	select {
	case <-ctx.Done():
		logger.Info("draining", "delay", h.Delay.String())
		h.draining.Store(true)
		cause = h.linger(failed)
	case cause = <-failed:
	}
	h.draining.Store(true)
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
	defer cancel()
	admin := min(1, len(ports))
	return errors.Join(cause, shut(finish, ports[admin:]), shut(finish, ports[:admin]))
}

// ServeBeside serves the ports until `work` has returned, which it MUST do when ctx ends. If
// `work` or a port fails, ServeBeside stops both and returns the error.
func (h *Health) ServeBeside(ctx context.Context, logger *slog.Logger, work func(context.Context) error, ports ...Port) error {
	ended := make(chan struct{})
	h.work = ended
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(ended)
		return work(ctx)
	})
	group.Go(func() error { return h.Serve(ctx, logger, ports...) })
	return group.Wait()
}

func (h *Health) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (h *Health) linger(failed <-chan error) error {
	select {
	case <-time.After(h.Delay):
	case err := <-failed:
		return err
	}
	if h.work == nil {
		return nil
	}
	select {
	case <-h.work:
		return nil
	case err := <-failed:
		return err
	}
}

func shut(ctx context.Context, ports []Port) error {
	errs := make([]error, len(ports))
	var all sync.WaitGroup
	for i, p := range ports {
		all.Go(func() {
			if err := p.Server.Shutdown(ctx); err != nil {
				errs[i] = fmt.Errorf("cannot drain the %s port: %w", p.Name, err)
				_ = p.Server.Close()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
