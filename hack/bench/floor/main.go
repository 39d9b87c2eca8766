// Command floor is a minimal two-party deal service, without authentication,
// sealing, idempotency or verification. The benchmark runs it beside the product
// to show what the machine can do. Do not copy the design of this program.
//
// Concurrent calls share one INSERT, and concurrent appends to the log share one statement.
//
// The log runs in a second process of this program, with the flag -log. The log process also
// creates the tables.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schemaSQL string

// call is the body of a request and of its answer.
type call struct {
	Deal  int64  `json:"deal"`
	Party int    `json:"party"` // 1 or 2
	Hash  string `json:"hash"`
}

func main() {
	asLog := flag.Bool("log", false, "run the log, not the deal service")
	database := flag.String("db", "", "URL of the database, which must be empty when the log starts")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	logURL := flag.String("log-url", "", "URL of the log; only the deal service uses it")
	flag.Parse()
	if err := run(*asLog, *database, *listen, *logURL); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(asLog bool, database, listen, logURL string) error {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	if asLog {
		if _, err := pool.Exec(ctx, schemaSQL); err != nil {
			return err
		}
		newLog(pool).register(mux)
	} else {
		register(mux, newGrouped(pool, newSigner(logURL+"/append")))
	}
	listener, err := net.Listen("tcp4", listen)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, mux)
}

// lastDeal is the newest deal id of this process. It starts at the current time, so that
// the ids of two runs differ.
var lastDeal atomic.Int64

func init() { lastDeal.Store(time.Now().UnixMicro()) }

func register(mux *http.ServeMux, s *grouped) {
	handle := func(path string, do func(context.Context, *call) error) {
		mux.HandleFunc("POST /"+path, func(w http.ResponseWriter, r *http.Request) {
			var c call
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = json.Unmarshal(body, &c)
			}
			if err == nil {
				err = do(r.Context(), &c)
			}
			answer(w, c, err)
		})
	}
	handle("create", func(ctx context.Context, c *call) error {
		c.Deal = lastDeal.Add(1)
		return s.create(ctx, c.Deal)
	})
	handle("commit", func(ctx context.Context, c *call) error { return s.commit(ctx, *c) })
	handle("reveal", func(ctx context.Context, c *call) error { return s.reveal(ctx, *c) })
}

func answer(w http.ResponseWriter, body any, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
