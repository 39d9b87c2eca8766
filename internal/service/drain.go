package service

import (
	"net/http"
	"time"
)

// The way out of a process that serves: readiness falls, and for Health.Delay
// all is served as before, while load balancers learn of it. Each answer in that
// time ends its connection, so that clients move to other replicas between two
// requests and not in the middle of one. Then the listeners close and what is
// under way is finished; the admin port, which says so, closes last.

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

// linger serves on for the delay, or until a port fails.
func (h *Health) linger(failed <-chan error) error {
	if h.Delay <= 0 {
		return nil
	}
	select {
	case <-time.After(h.Delay):
		return nil
	case err := <-failed:
		return err
	}
}
