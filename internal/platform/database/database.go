// Package database connects the escrow and the log to Postgres. It opens a connection pool
// with the session settings that the escrow and the log need, and migrates their schemas.
package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib" // pgx as a database/sql driver, for goose
	"github.com/pressly/goose/v3"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

var (
	//go:embed sql/session_settings.sql
	sessionSettingsSQL string
	//go:embed sql/try_lock_migrations.sql
	tryLockMigrationsSQL string
	//go:embed sql/no_timeouts.sql
	noTimeoutsSQL string
	//go:embed sql/standby_wait.sql
	standbyWaitSQL string
)

// MinConns is the smallest value of FAIRPACT_DATABASE_CONNS that the services accept. A
// statement that waits for a lock keeps its connection, and other statements need connections
// meanwhile.
const MinConns = 4

// Open opens a pool of at most maxConns connections. If maxConns is 0, the maximum is
// pool_max_conns in the URL. If the URL has no pool_max_conns, the default of pgx applies. Open
// returns an error if the database cannot be reached before ctx ends. No error shows the URL,
// which may hold a password.
//
// The settings in sql/session_settings.sql override the server's defaults:
//   - a commit is durable before other sessions see it;
//   - a transaction is READ COMMITTED;
//   - a process that vanishes loses its locks after 10 seconds;
//   - reads use indexes.
//
// The settings belong to a session, so PgBouncer in transaction mode does not work.
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
		return nil, fmt.Errorf("cannot open the database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("cannot reach the database: %w", err)
	}
	newest.Store(pool)
	go watch(pool)
	return pool, nil
}

// Option changes the configuration of a pool.
type Option func(*pgxpool.Config)

// ReadOnly is an Option that makes the server refuse every write of the pool (SQLSTATE 25006).
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

// Named is an Option that sets the application_name of each connection, unless the URL sets one. Once
// the name has changed, pgxpool.Pool.Reset gives it to the connections.
func Named(application func() string) Option {
	return func(config *pgxpool.Config) {
		if config.ConnConfig.RuntimeParams["application_name"] != "" {
			return
		}
		config.BeforeConnect = func(_ context.Context, next *pgx.ConnConfig) error {
			next.RuntimeParams["application_name"] = application()
			return nil
		}
	}
}

// ErrNoAnswer is returned, together with its cause, in an outage (see Outage).
var ErrNoAnswer = errors.New("the database does not answer")

// Outage reports whether a statement failed because the database is out of reach, or
// because it cannot run the statement now. Every error that does not come from Postgres
// counts as an outage.
func Outage(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err != nil
	}
	switch pg.Code[:2] {
	case "08", "40", "53", "57": // SQLSTATE classes: connection, transaction rollback, resources, operator intervention
		return true
	case "XX", "58": // internal and system errors: the server refuses connections like this when its disk is full
		_, connecting := errors.AsType[*pgconn.ConnectError](err)
		return connecting
	}
	return pg.Code == LockTimeout
}

var server atomic.Value // string

// Server identifies the database server of the newest connection, since its last restart. It is
// empty before the first connection.
func Server() string {
	name, _ := server.Load().(string)
	return name
}

// Close closes a pool just before the process ends. It waits at most 250 ms: pgx alone waits up
// to 15 s for a server that does not answer.
func Close(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(250 * time.Millisecond):
	}
}

// Config returns the configuration of a pool for Open. An error does not show the URL.
func Config(databaseURL string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil || databaseURL == "" { // for an empty URL, pgx would look for a server on this machine
		return nil, unusable(err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	config.PingTimeout = 2 * time.Second // how long the pool takes to notice that a connection's server vanished
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		var started string
		if err := conn.QueryRow(ctx, sessionSettingsSQL).Scan(&started); err != nil {
			return err
		}
		server.Store(started)
		return nil
	}
	config.ConnConfig.OnNotice = breakUnreplicated
	config.ConnConfig.Tracer = waits{}
	if telemetry.Traced() {
		config.ConnConfig.Tracer = tracer{otelpgx.NewTracer(otelpgx.WithDisableConnectionDetailsInAttributes(), otelpgx.WithDisableAcquireTracer())}
	}
	return config, nil
}

// unusable replaces an error of pgx about a URL, whose text may contain the password. The cause
// of a TLS error cannot.
func unusable(err error) error {
	if cause := errors.Unwrap(err); cause != nil && strings.HasSuffix(err.Error(), ": failed to configure TLS ("+cause.Error()+")") {
		return fmt.Errorf("the database URL (DATABASE_URL, FAIRPACT_LOG_DATABASE_URL or FAIRPACT_FORK_GUARD) is not usable: %w: correct sslmode, sslrootcert, sslcert and sslkey, or the files that they name", cause)
	}
	return errors.New("the database URL (DATABASE_URL, FAIRPACT_LOG_DATABASE_URL or FAIRPACT_FORK_GUARD) is not a Postgres URL (not shown, because it may hold a password): set it to postgres://USER:PASSWORD@HOST:PORT/NAME")
}

// breakUnreplicated makes a commit fail if its wait for the synchronous standby was cancelled.
// Postgres reports such a commit as a success with a warning, but a failover may lose it. The
// connection closes before pgx reads the result, so the caller treats the outcome as unknown.
//
// Only the routine identifies the warning: its text may be translated, and all warnings have the
// same SQLSTATE.
func breakUnreplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine != "SyncRepWaitForLSN" {
		return
	}
	slog.Error("commit not replicated, outcome unknown", "err", notice.Message)
	_ = conn.Conn().Close()
	for { // discard the bytes already received, because they contain the result
		if _, err := conn.Frontend().Receive(); err != nil {
			return
		}
	}
}

// Schema is a Postgres schema with its migrations: files named NUMBER_name.sql.
// Migrations after the first MUST keep the rules of MIGRATIONS.md. The schema contains
// its own version table.
type Schema struct {
	Name       string
	Migrations fs.FS
}

// NewSchema returns a schema with the migrations that a package embeds from its folder "migrations".
func NewSchema(name string, embedded embed.FS) Schema {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err)
	}
	return Schema{Name: name, Migrations: files}
}

// Migrate runs the migrations that the schema lacks. Under an advisory lock, processes that call
// Migrate at the same time run one after the other.
func (s Schema) Migrate(ctx context.Context, databaseURL string) error {
	config, err := Config(databaseURL)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, noTimeoutsSQL)
		return err
	}))
	defer db.Close()

	// The migration lock ends with the session of conn.
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("cannot reach the database: %w", err)
	}
	defer conn.Close()
	if err := waitForLock(ctx, conn); err != nil {
		return fmt.Errorf("cannot get the migration lock: %w", err)
	}
	if _, err := conn.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+s.quoted()); err != nil {
		return fmt.Errorf("cannot create the schema %s: %w", s.Name, err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, s.Migrations, goose.WithTableName(s.Name+".goose_db_version"))
	if err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		_, err := provider.Up(ctx)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == LockTimeout && tries < lockTries {
			time.Sleep(lockPause)
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot migrate the schema %s: %w", s.Name, err)
		}
		return nil
	}
}

// waitForLock polls, because a statement that waits for the lock keeps a snapshot, and would
// deadlock with CREATE INDEX CONCURRENTLY of the process that has the lock.
func waitForLock(ctx context.Context, conn *sql.Conn) error {
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
	lockTries = 60 // a migration fails after this many tries to lock a table
)

// LockTimeout is the SQLSTATE lock_not_available: lock_timeout has passed.
const LockTimeout = "55P03"

// Version returns the number of the newest migration that this binary contains.
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

// ErrSchema is wrapped by the errors of Current about the version of the schema.
var ErrSchema = errors.New("the database's schema is too old")

// Current returns ErrSchema if the schema is missing or older than this binary needs, or
// ErrNoAnswer in an outage. A newer schema is fine: migrations run before the binaries
// are replaced, and stay when the binaries are rolled back.
func (s Schema) Current(ctx context.Context, pool *pgxpool.Pool) error {
	var version int64
	err := pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+s.quoted()+".goose_db_version WHERE is_applied").Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42P01" || pg.Code == "3F000") {
		return fmt.Errorf("%w: there is no schema %s: run `fairpactctl migrate`", ErrSchema, s.Name)
	}
	if err != nil {
		return noAnswer(err)
	}
	if want := s.Version(); version < want {
		return fmt.Errorf("%w: %s is at version %d and this binary needs %d: run `fairpactctl migrate`", ErrSchema, s.Name, version, want)
	}
	return nil
}

func (s Schema) quoted() string { return pgx.Identifier{s.Name}.Sanitize() }

// Now returns the database's clock in unix seconds, or ErrNoAnswer in an outage.
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
