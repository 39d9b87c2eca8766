package httpapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/caller"
	"github.com/fairpact/fairpact/internal/limits"
)

// A call that waits for something that hangs ends by itself, after a slow body
// would have arrived and before the connection is cut.
func TestCallsAreBounded(t *testing.T) {
	a := &API{Config: Config{Logger: slog.New(slog.DiscardHandler), Callers: &caller.Policy{}}, limits: limits.New()}
	server := Server(nil, a.Logger)
	begin := time.Now()
	a.observed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ends, bounded := r.Context().Deadline()
		if !bounded || ends.Before(begin.Add(server.ReadTimeout)) || ends.After(time.Now().Add(server.WriteTimeout)) {
			t.Errorf("the call ends at %s (%v), it began at %s", ends, bounded, begin)
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/status", nil))
}
