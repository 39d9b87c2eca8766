package service_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/service"
)

// A database that is away changes no verdict, whatever it was; what the database
// answers does.
func TestReadinessWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	away, secret := fmt.Errorf("%w: refused", database.ErrNoAnswer), errors.New("another server secret")
	var found atomic.Pointer[error]
	h := service.NewHealth(func(context.Context) error { return *found.Load() }).Handler()
	for i, step := range []struct {
		found  error
		status int
		says   string
	}{
		{away, 503, "does not answer"}, // at the start
		{nil, 200, "ok"},
		{away, 200, "does not answer"},
		{secret, 503, "another server secret"},
		{away, 503, "does not answer"},
		{nil, 200, "ok"},
	} {
		found.Store(&step.found)
		answered := httptest.NewRecorder()
		h.ServeHTTP(answered, httptest.NewRequest("GET", "/readyz", nil))
		if answered.Code != step.status || !strings.Contains(answered.Body.String(), step.says) {
			t.Errorf("step %d: %d %q, want %d with %q", i, answered.Code, answered.Body, step.status, step.says)
		}
	}
}
