// Package database is how the escrow and the log reach Postgres: a pool with the
// session settings that both rely on, and the migrations of a schema.
package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib" // goose runs over database/sql
	"github.com/pressly/goose/v3"

	"github.com/fairpact/fairpact/internal/telemetry"
)

var (
	//go:embed sql/session_settings.sql
	sessionSettingsSQL string
	//go:embed sql/try_lock_migrations.sql
	tryLockMigrationsSQL string
	//go:embed sql/no_timeouts.sql
	noTimeoutsSQL string
)

// MinConns is the least that a binary's pool works well with: statements that hold a
// connection each wait for others.
const MinConns = 4

// Open connects a pool of at most maxConns connections (0: as the URL says). A
// commit is durable before it is seen, and a transaction READ COMMITTED, whatever
// the server's defaults; a process that vanishes loses its locks after 10
// seconds; every read goes by its key. The settings need a session: PgBouncer in
// transaction mode will not do. It fails where the database cannot be reached
// before ctx ends. Errors never show the URL, which may hold a password.
func Open(ctx context.Context, databaseURL string, maxConns int32, options ...Option) (*pgxpool.Pool, error) {
	config, err := Config(databaseURL)
	if err != nil {
		return nil, err
	}
	if maxConns > 0 {
		config.MaxConns = maxConns
	}
	for _, option := range options {
		option(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach the database: %w", err)
	}
	newest.Store(pool)
	go watch(pool)
	return pool, nil
}

// Option changes the configuration of a pool.
type Option func(*pgxpool.Config)

// ReadOnly makes the server refuse every write of the pool, with SQLSTATE 25006.
func ReadOnly(config *pgxpool.Config) {
	settings := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := settings(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SET default_transaction_read_only = on")
		return err
	}
}

// ErrNoAnswer is wrapped by errors that mean that the database is out of reach; see
// Outage.
var ErrNoAnswer = errors.New("the database does not answer")

// Outage reports whether an error of a statement means that the database is out of
// reach or cannot take it now, rather than that it is wrong.
func Outage(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err != nil
	}
	switch pg.Code[:2] {
	case "08", "40", "53", "57": // connection, transaction rollback, resources, operator intervention
		return true
	}
	return pg.Code == lockTimeout
}

// server tells the database server that the newest connection reached from any
// other, and from itself before a restart.
var server atomic.Pointer[string]

// Server identifies the database server of the newest connection; it changes
// with a restart, a restore and a failover. It is empty before the first one.
func Server() string {
	if name := server.Load(); name != nil {
		return *name
	}
	return ""
}

// closeBound is what a database that does not answer may add to a stop.
const closeBound = 250 * time.Millisecond

// Close ends the connections of a pool that nobody uses any more. The goodbye to
// a server that does not answer takes up to 15 seconds and is not waited for: the
// process ends, and its connections with it.
func Close(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeBound):
	}
}

// Application is how this process names itself to Postgres, unless the URL does.
// Set it before Open.
var Application string

// Config is the pool's configuration that Open uses.
func Config(databaseURL string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not a Postgres URL (its text is not shown, it may hold a password)")
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if params := config.ConnConfig.RuntimeParams; Application != "" && params["application_name"] == "" {
		params["application_name"] = Application
	}
	config.PingTimeout = 2 * time.Second // a connection whose server vanished is found out in that time
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		var started string
		if err := conn.QueryRow(ctx, sessionSettingsSQL).Scan(&started); err != nil {
			return err
		}
		server.Store(&started)
		return nil
	}
	config.ConnConfig.OnNotice = breakUnreplicated
	if telemetry.Traced() {
		config.ConnConfig.Tracer = tracer{otelpgx.NewTracer(otelpgx.WithDisableConnectionDetailsInAttributes(), otelpgx.WithDisableAcquireTracer())}
	}
	return config, nil
}

// breakUnreplicated makes an unknown outcome of a commit whose wait for the
// synchronous standby was cancelled. Postgres reports that by a warning alone: the
// transaction is committed on this server, and a failover may lose it. The
// statement must not succeed, so the connection ends before its result is read.
// The warning is known by its place in Postgres: its text is translated and its
// SQLSTATE is that of all warnings.
func breakUnreplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine != "SyncRepWaitForLSN" {
		return
	}
	slog.Error("commit not replicated, outcome unknown", "err", notice.Message)
	_ = conn.Conn().Close()
	for { // what was received already holds the result
		if _, err := conn.Frontend().Receive(); err != nil {
			return
		}
	}
}

// Schema is a schema of Postgres with the migrations that lead to it, files
// named NUMBER_name.sql, of which those after the first keep to MIGRATIONS.md.
// Its version table lies in it.
type Schema struct {
	Name       string
	Migrations fs.FS
}

// NewSchema is the schema with the migrations that a package embeds from its
// folder migrations.
func NewSchema(name string, embedded embed.FS) Schema {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err)
	}
	return Schema{Name: name, Migrations: files}
}

// Migrate brings the schema up to the newest migration. It may be run again,
// and by several processes at once.
func (s Schema) Migrate(ctx context.Context, databaseURL string) error {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return errors.New("DATABASE_URL is not a Postgres URL (its text is not shown, it may hold a password)")
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, noTimeoutsSQL)
		return err
	}))
	defer db.Close()

	// The lock lives in its own session and ends with it.
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	defer conn.Close()
	if err := lockMigrations(ctx, conn); err != nil {
		return fmt.Errorf("lock the migrations: %w", err)
	}
	if _, err := conn.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+s.quoted()); err != nil {
		return fmt.Errorf("create the schema %s: %w", s.Name, err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, s.Migrations, goose.WithTableName(s.Name+".goose_db_version"))
	if err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		_, err := provider.Up(ctx)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == lockTimeout && tries < lockTries {
			time.Sleep(lockPause)
			continue
		}
		if err != nil {
			return fmt.Errorf("migrate the schema %s: %w", s.Name, err)
		}
		return nil
	}
}

// lockMigrations asks for the lock until it has it. A statement that waits for it
// would hold a snapshot, and CREATE INDEX CONCURRENTLY of the process that has the
// lock waits for all snapshots: both would wait for ever.
func lockMigrations(ctx context.Context, conn *sql.Conn) error {
	for {
		var mine bool
		if err := conn.QueryRowContext(ctx, tryLockMigrationsSQL).Scan(&mine); err != nil || mine {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

const (
	lockPause = 100 * time.Millisecond
	lockTries = 60 // of a migration that waits for a table, 2 s each

	lockTimeout = "55P03" // SQLSTATE
)

// Version is the newest migration's number.
func (s Schema) Version() int64 {
	files, err := fs.Glob(s.Migrations, "*.sql")
	if err != nil || len(files) == 0 {
		panic("database: no embedded migrations")
	}
	version, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		panic(err)
	}
	return version
}

// Current fails where the schema is missing or older than this binary needs. A
// newer one is fine: migrations run before the binaries are replaced, and stay
// when these are rolled back.
func (s Schema) Current(ctx context.Context, pool *pgxpool.Pool) error {
	var version int64
	err := pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+s.quoted()+".goose_db_version WHERE is_applied").Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42P01" || pg.Code == "3F000") {
		return fmt.Errorf("the database has no schema %s of Fairpact: run `fairpactctl migrate`", s.Name)
	}
	if err != nil {
		return noAnswer(err)
	}
	if want := s.Version(); version < want {
		return fmt.Errorf("the schema %s is at version %d and this binary needs %d: run `fairpactctl migrate`", s.Name, version, want)
	}
	return nil
}

func (s Schema) quoted() string { return pgx.Identifier{s.Name}.Sanitize() }

// Now returns the database's clock, unix seconds.
func Now(ctx context.Context, pool *pgxpool.Pool) (now int64, err error) {
	err = pool.QueryRow(ctx, "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint").Scan(&now)
	return now, noAnswer(err)
}

func noAnswer(err error) error {
	if Outage(err) {
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return err
}
