package database_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

// The span of a failed statement has the SQLSTATE but not the message, because messages quote
// values, users and databases.
func TestSpansOfFailures(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	telemetry.Trace()
	otel.SetTracerProvider(provider)
	ctx, span := provider.Tracer("test").Start(t.Context(), "call")
	pool := open(t, servertest.Postgres(t))

	const planted = "planted-secret"
	for name, fail := range map[string]func() error{
		"query": func() error {
			_, err := pool.Exec(ctx, "SELECT $1::text::int", planted)
			return err
		},
		"batch": func() error {
			batch := &pgx.Batch{}
			batch.Queue("SELECT $1::text::int", planted)
			return pool.SendBatch(ctx, batch).Close()
		},
		"copy": func() error {
			_, err := pool.CopyFrom(ctx, pgx.Identifier{"pg_catalog", "pg_am"}, []string{"oid"}, pgx.CopyFromRows([][]any{{planted}}))
			return err
		},
		"prepare": func() error {
			_, err := pool.Exec(ctx, "SELECT FROM no_table WHERE $1 > 0", 1)
			return err
		},
		"connect": func() error {
			config, err := database.Config("postgres://planted-user@127.0.0.1:1/planted-database?sslmode=disable")
			if err != nil {
				t.Fatal(err)
			}
			nowhere, err := pgxpool.NewWithConfig(ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			defer nowhere.Close()
			return nowhere.Ping(ctx)
		},
	} {
		before, failed := len(spans.Ended()), 0
		if err := fail(); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
		for _, s := range spans.Ended()[before:] {
			text, err := json.Marshal(tracetest.SpanStubFromReadOnlySpan(s))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "planted") || strings.Contains(string(text), "does not exist") {
				t.Errorf("%s: the span quotes the error's message: %s", name, text)
			}
			want := "SQLSTATE "
			if name == "connect" {
				want = "no answer from Postgres"
			}
			if s.Status().Code == codes.Error {
				failed++
				if !strings.HasPrefix(s.Status().Description, want) || strings.Contains(string(text), "pgx.sql_state") != (name != "connect") {
					t.Errorf("%s: got the span %s, want a status that begins with %q", name, text, want)
				}
			}
		}
		if failed == 0 {
			t.Errorf("%s: 0 spans report the failure, want at least 1", name)
		}
	}
	span.End()
}
