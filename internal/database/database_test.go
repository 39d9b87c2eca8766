package database_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := database.Open(t.Context(), url, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A server that acknowledges commits before they are durable is told otherwise.
// No plan scans a table that has grown since, and none is compiled by JIT, which
// stock Postgres servers have on.
func TestSessionSettings(t *testing.T) {
	url := servertest.Postgres(t)
	for setting, want := range map[string]string{"off": "on", "on": "on", "remote_write": "remote_write"} {
		first := open(t, url)
		if _, err := first.Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = "+setting+"', current_database()); END $$"); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := open(t, url).QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != want {
			t.Errorf("synchronous_commit %s becomes %s (%v), want %s", setting, got, err, want)
		}
	}
	if _, err := open(t, url).Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database()); END $$"); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"enable_seqscan", "jit"} {
		var got string
		if err := open(t, url).QueryRow(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != "off" {
			t.Errorf("%s is %s (%v), want off", setting, got, err)
		}
	}
}

// Who locks in one statement and decides in the next wants READ COMMITTED,
// whatever the server's default.
func TestIsolation(t *testing.T) {
	url := servertest.Postgres(t)
	if _, err := open(t, url).Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database()); END $$"); err != nil {
		t.Fatal(err)
	}
	batch := &pgx.Batch{} // one implicit transaction, with no BEGIN that names its level
	var got string
	batch.Queue("SELECT pg_advisory_xact_lock(1)")
	batch.Queue("SHOW transaction_isolation").QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
	if err := open(t, url).SendBatch(t.Context(), batch).Close(); err != nil || got != "read committed" {
		t.Errorf("a batch runs under %s (%v), want read committed", got, err)
	}
}

// A migration may take as long as it takes, and the session that holds the lock of
// the migrations idles meanwhile, whatever is set for the role.
func TestMigrationsHaveNoTimeouts(t *testing.T) {
	url := servertest.Postgres(t)
	for _, setting := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"} {
		if _, err := open(t, url).Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET "+setting+" = ''1s''', current_user, current_database()); END $$"); err != nil {
			t.Fatal(err)
		}
	}
	slow := database.Schema{Name: "slow", Migrations: fstest.MapFS{"00001_slow.sql": {Data: []byte("-- +goose Up\nSELECT pg_sleep(1.5);\n")}}}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := slow.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// A migration that waits for a table lets others pass, and goes on when the
// table is free.
func TestMigrationsGiveWay(t *testing.T) {
	url := servertest.Postgres(t)
	pool := open(t, url)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE busy (n int)")
	held, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), "LOCK TABLE busy IN ACCESS SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	schema := database.Schema{Name: "waits", Migrations: fstest.MapFS{"00001_waits.sql": {Data: []byte("-- +goose Up\nSET LOCAL lock_timeout = '10ms';\nALTER TABLE public.busy ADD COLUMN m int;\n")}}}
	migrated := make(chan error, 1)
	go func() { migrated <- schema.Migrate(t.Context(), url) }()
	for failed := 0; failed < 2; { // tries of the migration that have given up
		select {
		case err := <-migrated:
			t.Fatalf("it ended while the table was locked: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		if err := pool.QueryRow(t.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&failed); err != nil {
			t.Fatal(err)
		}
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	exec("SELECT m FROM busy")
}

// A URL that does not parse, or leads nowhere, never shows its password.
func TestErrorsHideThePassword(t *testing.T) {
	for _, url := range []string{"postgres://u:hunter2@%%/", "postgres://u:hunter2@127.0.0.1:1/none"} {
		_, err := database.Open(t.Context(), url, 0)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		if err := (database.Schema{Name: "x"}).Migrate(t.Context(), url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
