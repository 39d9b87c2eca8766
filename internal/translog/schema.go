package translog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // goose runs over database/sql
	"github.com/pressly/goose/v3"
)

const versionTable = "translog.goose_db_version"

// OpenPool connects to the log's database with the session settings the log
// relies on: a commit is durable before it is seen, whatever the server's
// default, a replica that vanishes while it holds the log's lock loses it after
// 10 seconds, and every read goes by its key. It fails where the database cannot
// be reached before ctx ends.
func OpenPool(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	config, err := poolConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach the database: %w", err)
	}
	return pool, nil
}

func poolConfig(databaseURL string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sqlSessionSettings)
		return err
	}
	return config, nil
}

// Migrate brings the schema translog up to this binary's version. It may be run
// again, and by several processes at once.
func Migrate(ctx context.Context, databaseURL string) (err error) {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()

	// The lock lives in its own session and ends with it.
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, sqlLockMigrations); err != nil {
		return fmt.Errorf("lock the migrations of the log: %w", err)
	}
	if _, err := conn.ExecContext(ctx, sqlCreateSchema); err != nil {
		return fmt.Errorf("create the schema translog: %w", err)
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema translog: %w", err)
	}
	return nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable))
}

// wantVersion is the newest embedded migration.
var wantVersion = func() int64 {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		panic("translog: no embedded migrations")
	}
	version, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		panic(err)
	}
	return version
}()

// SchemaCurrent fails where the schema is missing or older than this binary
// needs. A newer one is fine: migrations run before the binaries are replaced.
func SchemaCurrent(ctx context.Context, pool *pgxpool.Pool) error {
	var version int64
	err := pool.QueryRow(ctx, sqlSchemaVersion).Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42P01" || pg.Code == "3F000") {
		return errors.New("the database has no schema translog: run `fairpactctl migrate`")
	}
	if err != nil {
		return unavailable(err)
	}
	if version < wantVersion {
		return fmt.Errorf("the schema translog is at version %d and this binary needs %d: run `fairpactctl migrate`", version, wantVersion)
	}
	return nil
}

// unavailable marks a failure of the database or the network.
func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }
