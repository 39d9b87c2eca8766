package database_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

// A primary that freezes, and runs again after its standby was promoted, still answers
// on its old connections, from an old state. The pool gives out none of them after
// its first connection to the new primary.
func TestConnectionsToAFormerPrimaryAreDropped(t *testing.T) {
	t.Parallel()
	primary := servertest.StartPostgres(t)
	standby, err := primary.StartStandby(t.Context(), localservers.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, standby.Close()) })
	const most = 4
	pool, err := database.Open(t.Context(), localservers.PrimaryURL("postgres", standby, primary), most)
	check(t, err)
	t.Cleanup(pool.Close)

	acquire := func() (*pgxpool.Conn, int) {
		t.Helper()
		conn, err := pool.Acquire(t.Context())
		check(t, err)
		var port int
		check(t, conn.QueryRow(t.Context(), "SELECT inet_server_port()").Scan(&port))
		return conn, port
	}
	var old []*pgxpool.Conn
	for range most {
		conn, port := acquire()
		if port != primary.Port() {
			t.Fatalf("a connection leads to port %d before the standby is promoted", port)
		}
		old = append(old, conn)
	}
	check(t, standby.Promote(t.Context()))
	check(t, old[0].Conn().Close(t.Context())) // so that the pool makes a new one
	old[0].Release()
	first, port := acquire()
	if port != standby.Port() {
		t.Fatalf("a new connection leads to port %d and not to the new primary", port)
	}
	for _, conn := range append(old[1:], first) {
		conn.Release()
	}
	for range most {
		conn, port := acquire()
		defer conn.Release()
		if port != standby.Port() {
			t.Error("a connection to the former primary was given out")
		}
	}
}
