package ephemeral

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// patient gives commands the time that a slow machine may take for them, so that
// a test of what Redis answers is none of how fast it does.
func patient(t *testing.T, url string) *Redis {
	t.Helper()
	return hasty(t, url+servertest.PatientRedis)
}

// hasty is the client as it is deployed.
func hasty(t *testing.T, url string) *Redis {
	t.Helper()
	r, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// bounded is a context that no call here should outlive, however slow the
// machine: a call that hangs fails its test and not the whole run.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx := bounded(t)
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("gave up waiting until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// held reports whether Redis keeps others from a lock; it takes none itself.
func held(ctx context.Context, r *Redis, name string) bool {
	unlock, free := r.Lock(ctx, name, time.Hour)
	if free {
		unlock()
	}
	return !free
}
