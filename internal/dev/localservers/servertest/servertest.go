// Package servertest starts real Postgres and Redis servers for tests. A package that uses
// it must have
//
//	func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
//
// If a server is not installed, the tests fail and say what to install. They are never
// skipped.
package servertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localservers"
)

// PostgresEnv is an environment variable with the URL of a running Postgres. If the variable
// is set, the function Postgres uses that server. The user in the URL must be allowed to create
// databases.
const PostgresEnv = "FAIRPACT_TEST_POSTGRES_URL"

// PatientRedis is a URL query with long timeouts. Tests append it to a Redis URL, so that
// clients do not fail on a slow machine.
const PatientRedis = "?dial_timeout=30s&read_timeout=30s&write_timeout=30s&pool_timeout=30s"

var shared struct {
	sync.Mutex
	postgres *localservers.Postgres
}

// Main runs the tests of a package and then stops the Postgres that they share. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.postgres != nil {
		if err := shared.postgres.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "servertest:", err)
			return max(code, 1)
		}
		shared.postgres = nil
	}
	return code
}

func adminURL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv(PostgresEnv); given != "" {
		return given
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.postgres == nil {
		p, err := localservers.StartPostgres(context.Background(), localservers.Options{})
		if err != nil {
			fatal(t, "Postgres", err)
		}
		shared.postgres = p
	}
	return shared.postgres.AdminURL()
}

// Postgres returns the URL of a new empty database, which is dropped at the end of the
// test. All tests of a package share one server. A client waits long for a connection, so that it does
// not fail on a slow machine.
func Postgres(t testing.TB) string {
	t.Helper()
	admin := adminURL(t)
	name := "t_" + strings.ToLower(rand.Text())
	execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatalf("servertest: %s is not a URL: %v", PostgresEnv, err)
	}
	u.Path = "/" + name
	query := u.Query()
	query.Set("connect_timeout", "30")
	u.RawQuery = query.Encode()
	return u.String()
}

func execute(t testing.TB, admin, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		t.Fatalf("servertest: cannot connect to Postgres: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("servertest: %s failed: %v", sql, err)
	}
}

// StartPostgres starts a Postgres for one test. The test may stop and restart it. The
// server ends with the test.
func StartPostgres(t testing.TB) *localservers.Postgres {
	t.Helper()
	p, err := localservers.StartPostgres(t.Context(), localservers.Options{})
	if err != nil {
		fatal(t, "Postgres", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("servertest: cannot stop Postgres: %v", err)
		}
	})
	return p
}

// Redis returns the URL of an empty Redis that only this test uses.
func Redis(t testing.TB) string {
	t.Helper()
	return StartRedis(t).URL()
}

// StartRedis starts a Redis for one test. The test may stop and restart it. The server ends
// with the test.
func StartRedis(t testing.TB) *localservers.Redis {
	t.Helper()
	return startRedis(t, localservers.Options{})
}

func startRedis(t testing.TB, o localservers.Options) *localservers.Redis {
	t.Helper()
	r, err := localservers.StartRedis(t.Context(), o)
	if err != nil {
		fatal(t, "Redis", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("servertest: cannot stop Redis: %v", err)
		}
	})
	return r
}

func fatal(t testing.TB, server string, err error) {
	t.Helper()
	if missing := (*localservers.MissingError)(nil); errors.As(err, &missing) {
		t.Fatalf("this test needs a real %s: %v", server, err)
	}
	t.Fatalf("servertest: cannot start %s: %v", server, err)
}
