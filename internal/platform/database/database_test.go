package database_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := database.Open(t.Context(), url, 0)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func set(t *testing.T, url, setting string) {
	t.Helper()
	_, err := open(t, url).Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET "+setting+"', current_database()); END $$")
	check(t, err)
}

func TestSessionSettings(t *testing.T) {
	url := servertest.Postgres(t)
	for _, row := range []struct{ setting, server, want string }{
		{"synchronous_commit", "off", "on"},
		{"synchronous_commit", "on", "on"},
		{"synchronous_commit", "remote_write", "remote_write"},
		{"enable_seqscan", "on", "off"},
		{"jit", "on", "off"},
	} {
		set(t, url, row.setting+" = "+row.server)
		var got string
		if err := open(t, url).QueryRow(t.Context(), "SHOW "+row.setting).Scan(&got); err != nil || got != row.want {
			t.Errorf("%s with the default %s: the session has %s (%v), want %s", row.setting, row.server, got, err, row.want)
		}
	}
}

// Transactions are READ COMMITTED whatever the server's default. After one statement has
// locked a deal, the next statement must see what the previous holder of the lock committed.
func TestIsolation(t *testing.T) {
	url := servertest.Postgres(t)
	set(t, url, "default_transaction_isolation = ''repeatable read''")
	batch := &pgx.Batch{} // an implicit transaction, without a BEGIN that could name an isolation level
	var got string
	batch.Queue("SELECT pg_advisory_xact_lock(1)")
	batch.Queue("SHOW transaction_isolation").QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
	if err := open(t, url).SendBatch(t.Context(), batch).Close(); err != nil || got != "read committed" {
		t.Errorf("a batch runs under %s (%v), want read committed", got, err)
	}
}

// Migrate works although the database sets short timeouts. A timeout could end a slow
// migration, or the session that has the migration lock and is idle while the migration runs.
func TestMigrationsHaveNoTimeouts(t *testing.T) {
	url := servertest.Postgres(t)
	for _, setting := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"} {
		set(t, url, setting+" = ''1s''")
	}
	slow := database.Schema{Name: "slow", Migrations: fstest.MapFS{"00001_slow.sql": {Data: []byte("-- +goose Up\nSELECT pg_sleep(1.5);\n")}}}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := slow.Migrate(t.Context(), url); err != nil {
				t.Errorf("Migrate with timeouts of 1 s: %v, want no error", err)
			}
		})
	}
	both.Wait()
}

// While a migration waits for the lock of a table, other statements queue behind the
// migration. So a migration sets a short lock_timeout, and Migrate tries again until the table
// is free.
func TestMigrationsRetryALock(t *testing.T) {
	url := servertest.Postgres(t)
	pool := open(t, url)
	_, err := pool.Exec(t.Context(), "CREATE TABLE busy (n int)")
	check(t, err)
	held, err := pool.Begin(t.Context())
	check(t, err)
	_, err = held.Exec(t.Context(), "LOCK TABLE busy IN ACCESS SHARE MODE")
	check(t, err)
	schema := database.Schema{Name: "waits", Migrations: fstest.MapFS{"00001_waits.sql": {Data: []byte("-- +goose Up\nSET LOCAL lock_timeout = '10ms';\nALTER TABLE public.busy ADD COLUMN m int;\n")}}}
	migrated := make(chan error, 1)
	go func() { migrated <- schema.Migrate(t.Context(), url) }()
	for failed := 0; failed < 2; { // each failed try of the migration rolls back a transaction
		select {
		case err := <-migrated:
			t.Fatalf("the migration ended while the table was locked: %v; want it to try again", err)
		case <-time.After(20 * time.Millisecond):
		}
		check(t, pool.QueryRow(t.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&failed))
	}
	check(t, held.Rollback(t.Context()))
	check(t, <-migrated)
	_, err = pool.Exec(t.Context(), "SELECT m FROM busy")
	check(t, err)
}

func TestErrorsHideThePassword(t *testing.T) {
	for _, url := range []string{"postgres://u:hunter2@%%/", "postgres://u:hunter2@127.0.0.1:1/none"} {
		_, err := database.Open(t.Context(), url, 0)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open of %s: got error %v, want one without the password", url, err)
		}
		if err := (database.Schema{Name: "x"}).Migrate(t.Context(), url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Migrate of %s: got error %v, want one without the password", url, err)
		}
	}
}

func TestRefusedConnections(t *testing.T) {
	for code, outage := range map[string]bool{
		"XX000": true,  // "could not write init file" of a full disk
		"58030": true,  // input/output error
		"28P01": false, // wrong password: this process alone is at fault
	} {
		t.Run(code, func(t *testing.T) {
			_, err := database.Now(t.Context(), refusing(t, code))
			if errors.Is(err, database.ErrNoAnswer) != outage {
				t.Errorf("got error %v, want ErrNoAnswer: %t", err, outage)
			}
		})
	}
	t.Run("statement", func(t *testing.T) {
		if database.Outage(&pgconn.PgError{Code: "XX000"}) {
			t.Error("an internal error of a statement counts as an outage")
		}
	})
}

// refusing returns a pool on a server that refuses each connection with this SQLSTATE.
func refusing(t *testing.T, code string) *pgxpool.Pool {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			_, _ = backend.ReceiveStartupMessage()
			backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "refused"})
			_ = backend.Flush()
			_ = conn.Close()
		}
	}()
	pool, err := pgxpool.New(t.Context(), "postgres://u@"+l.Addr().String()+"/none?sslmode=disable")
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestErrorsNameTheTLSSetting(t *testing.T) {
	const url = "postgres://u:hunter2@127.0.0.1:1/none?sslmode="
	missing, noPEM := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.crt")
	check(t, os.WriteFile(noPEM, []byte("not a certificate"), 0o600))
	for query, want := range map[string]string{
		"verify-full&sslrootcert=" + missing: missing,
		"verify-full&sslrootcert=" + noPEM:   "CA",
		"verify-full&sslcert=" + noPEM:       "sslkey",
		"verify":                             "sslmode",
	} {
		_, err := database.Config(url + query)
		migrated := (database.Schema{Name: "x"}).Migrate(t.Context(), url+query)
		for _, err := range []error{err, migrated} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("sslmode=%s: got error %v, want one that names %s and not the password", query, err, want)
			}
		}
	}
}

func TestMigrationsPassOverASilentHost(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp4", "127.0.0.1:0") // the kernel completes handshakes, although nothing accepts the connections
	check(t, err)
	defer silent.Close()
	url := strings.NewReplacer("@", "@"+silent.Addr().String()+",", "connect_timeout=30", "connect_timeout=5").Replace(servertest.Postgres(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, database.Schema{Name: "empty", Migrations: fstest.MapFS{"00001_one.sql": {Data: []byte("-- +goose Up\nSELECT 1;\n")}}}.Migrate(ctx, url))
}
