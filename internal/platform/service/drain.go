package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

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
