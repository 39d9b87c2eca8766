package service

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// The way out of a process that serves: readiness falls, and for Health.Delay
// all is served as before, while load balancers learn of it. Each answer in that
// time ends its connection, so that clients move to other replicas between two
// requests and not in the middle of one. Then the listeners close and what is
// under way is finished; the admin port, which says so, closes last. Work beside
// the ports is told to stop at once, and they stay open until it has ended.

// ServeBeside serves beside work, which ends with its context in a time of its
// own. Where either fails the other ends, too.
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

// parting ends a connection with the answer that it carries once a stop was
// asked for.
func (h *Health) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// linger serves on for the delay and until the work beside has ended, or until a
// port fails.
func (h *Health) linger(failed <-chan error) error {
	if h.Delay > 0 {
		select {
		case <-time.After(h.Delay):
		case err := <-failed:
			return err
		}
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
