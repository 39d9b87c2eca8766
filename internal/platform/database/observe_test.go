package database_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
)

// fairpactctl closes its pool at its end. An operator would take a warning for an outage.
func TestAClosedPoolIsNoOutage(t *testing.T) { // not parallel: sets the default logger
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	address, err := url.Parse(servertest.Postgres(t))
	check(t, err)
	server := address.Host
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	address.Host = l.Addr().String()
	var accepted atomic.Int32
	go func() {
		var silent []net.Conn // without the slice, the garbage collector would close them
		defer func() {
			for _, conn := range silent {
				_ = conn.Close()
			}
		}()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if accepted.Add(1) > 1 {
				silent = append(silent, conn)
				continue
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
			go func() { _, _ = io.Copy(conn, to); _ = conn.Close() }()
		}
	}()
	eachAnew := func(config *pgxpool.Config) { config.AfterRelease = func(*pgx.Conn) bool { return false } }
	watches := func() int {
		stacks := make([]byte, 1<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "database.watch(")
	}
	others := watches()
	pool, err := database.Open(t.Context(), address.String(), 0, eachAnew)
	check(t, err)
	until(t, "the watch connects", func() bool { return accepted.Load() > 1 })
	pool.Close()
	until(t, "the watch ends", func() bool { return watches() <= others }) // those of other tests may end, too
	if text.Len() > 0 {
		t.Errorf("a closed pool logs %s; want nothing", text.String())
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
