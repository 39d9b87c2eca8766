package servertest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func TestDatabasesAreFreshAndDropped(t *testing.T) {
	var first string
	t.Run("first", func(t *testing.T) {
		first = servertest.Postgres(t)
		execute(t, first, "CREATE TABLE mine ()")
	})
	if conn, err := pgx.Connect(t.Context(), first); err == nil {
		conn.Close(t.Context())
		t.Error("the database of a finished test is still there")
	}
	execute(t, servertest.Postgres(t), "CREATE TABLE mine ()")
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
