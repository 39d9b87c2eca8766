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

	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// DrainTimeout limits how long a stopping process waits for the requests in flight. The sum of
// Health.Delay, DrainTimeout and flushTimeout MUST be shorter than the grace period of a pod.
const DrainTimeout = 28 * time.Second

// maxAdmin bounds the connections to the admin port: from probes, Prometheus and operators.
const maxAdmin = 256

// Port is an address with its server.
type Port struct {
	Name    string
	Address string
	Server  *http.Server

	MaxConnections int                   // see web.Listener; 0: not bounded
	Proxies        func(netip.Addr) bool // reports whether an address is a proxy; may be nil
}

// Server returns a server for h with limits against slow or greedy clients. A request may take the
// time `read` to arrive, and its answer may take the time `write` from the end of the header.
func Server(h http.Handler, read, write time.Duration, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       read,
		WriteTimeout:      write,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    8 << 10, // and 4 KiB that net/http adds
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

func (p Port) listener(l net.Listener, repeats *telemetry.Repeats) net.Listener {
	refused := problem.New(problem.Overloaded, "this port has reached its limit of connections, in total or from your address; close those that you do not use and try again in a few seconds").WithRetryAfter(2)
	return web.NewListener(l, p.Server, p.MaxConnections, p.Proxies, func(conn net.Conn) {
		_ = web.Refuse(conn, refused)
		repeats.Log(context.Background(), slog.LevelWarn, "connections refused", p.Name, "", "most", p.MaxConnections)
	})
}

// Health answers /healthz with 200 while the process runs, and /readyz with 200 while it is ready (see readiness).
type Health struct {
	Ready func(context.Context) error // MUST wrap database.ErrNoAnswer if the database does not answer
	Admin string                      // address of the admin port
	Work  func(context.Context) error // runs beside the ports; MUST return when its context ends; may be nil
	Delay time.Duration               // how long to keep serving after a stop is requested

	readiness readiness
	draining  atomic.Bool
}

func (h *Health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready, err := h.readiness.check(r.Context(), h.Ready)
		switch {
		case h.draining.Load():
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case ready && err != nil:
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

// Serve serves the admin port and `ports`, and runs h.Work, until ctx ends, or until one of them
// fails. It then stops all.
//
// When ctx ends, /readyz fails, and all ports answer for h.Delay more, while load balancers
// notice, and until h.Work has returned. Each answer closes its connection, so that clients move to
// other replicas. Then the ports finish the requests in flight and close, the admin port last.
func (h *Health) Serve(ctx context.Context, logger *slog.Logger, ports ...Port) error {
	ports = append(ports, Port{Name: "admin", Address: h.Admin, Server: Server(h.handler(), 10*time.Second, 10*time.Second, logger), MaxConnections: maxAdmin})
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
	h.readiness.logger = logger
	repeats, worked := telemetry.NewRepeats(logger), make(chan struct{})
	all, failed := errgroup.WithContext(ctx)
	all.Go(func() error {
		defer close(worked)
		if h.Work == nil {
			return nil
		}
		return h.Work(failed)
	})
	for i, p := range ports {
		logger.Info("listening", "port", p.Name, "address", listeners[i].Addr().String())
		p.Server.Handler = h.closing(p.Server.Handler)
		all.Go(func() error {
			if err := p.Server.Serve(p.listener(listeners[i], repeats)); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("cannot serve the %s port: %w", p.Name, err)
			}
			return nil
		})
	}
	all.Go(func() error { h.readiness.watch(failed, h.Ready); return nil })
	<-failed.Done()
	h.draining.Store(true)
	h.readiness.stop()
	if ctx.Err() != nil { // a stop, not a failure
		logger.Info("draining", "delay", h.Delay.String())
		time.Sleep(h.Delay)
		<-worked
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
	defer cancel()
	others := len(ports) - 1
	return errors.Join(shut(finish, ports[:others]), shut(finish, ports[others:]), all.Wait())
}

func (h *Health) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
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
