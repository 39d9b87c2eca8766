package redis

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func openPatient(t *testing.T, url string) *Redis {
	t.Helper()
	return open(t, url+servertest.PatientRedis)
}

func open(t *testing.T, url string) *Redis {
	t.Helper()
	r, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx := bounded(t)
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within 30 s: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func held(ctx context.Context, r *Redis, name string) bool {
	unlock, free := r.Lock(ctx, name, time.Hour)
	if free {
		unlock()
	}
	return !free
}
