package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// DefaultTimeout is the longest wait for a condition that has no time limit of its own. The wait
// ends as soon as the condition holds.
const DefaultTimeout = 3 * time.Minute

// DB reads and changes a stack's Postgres directly. It is not a witness of the log.
type DB struct {
	T    testing.TB
	Pool *pgxpool.Pool
}

// OpenDB connects to a stack's database.
func OpenDB(t testing.TB, stack *localstack.Stack) DB {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), stack.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return DB{t, pool}
}

// Number returns the single integer that a query selects.
func (w DB) Number(query string, args ...any) int64 {
	w.T.Helper()
	return Value[int64](w, query, args...)
}

// Value returns the single value that a query selects.
func Value[T any](w DB, query string, args ...any) (v T) {
	w.T.Helper()
	if err := w.Pool.QueryRow(w.T.Context(), query, args...).Scan(&v); err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
	return v
}

// Exec runs a statement and requires that it affects the given number of rows.
func (w DB) Exec(rows int64, query string, args ...any) {
	w.T.Helper()
	tag, err := w.Pool.Exec(w.T.Context(), query, args...)
	if err != nil || tag.RowsAffected() != rows {
		w.T.Fatalf("%s: %d rows, want %d: %v", query, tag.RowsAffected(), rows, err)
	}
}

// Column returns the first column of a query's rows, as text.
func (w DB) Column(query string, args ...any) (all []string) {
	w.T.Helper()
	w.each(query, args, func(rows pgx.Rows) error {
		values, err := rows.Values()
		if err == nil {
			all = append(all, fmt.Sprint(values[0]))
		}
		return err
	})
	return all
}

func (w DB) each(query string, args []any, read func(pgx.Rows) error) {
	w.T.Helper()
	rows, err := w.Pool.Query(w.T.Context(), query, args...)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = read(rows)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
}

// Cache connects to the stack's Redis. If Cache returned a *redis.Client, each package that calls
// Cache would take seconds longer to compile (see redis.Redis).
func Cache(t testing.TB, stack *localstack.Stack) redis.Cmdable {
	t.Helper()
	options, err := redis.ParseURL(stack.RedisURL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
