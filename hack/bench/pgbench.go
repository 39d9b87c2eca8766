package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localservers"
)

type pgbench struct {
	program string
	url     *url.URL // of a separate database
	insert  string   // path of the file with insertScript
	guarded string   // path of the file with guardedScript
}

var (
	insertScript = fmt.Sprintf("INSERT INTO inserted VALUES ('\\x%s');\n", strings.Repeat("2c26b46b68ffc68f", 8)) // inserts a row with a value of 64 bytes
	// guardedScript inserts a different row in each transaction. Transaction n of client c
	// inserts party 64n+c. Both n and c start at 0.
	guardedScript = `\set n :n + 1
\set party :n * 64 + :client_id
INSERT INTO guarded SELECT 1, :party::bigint, '\x2c26b46b68ffc68f'::bytea
 WHERE EXISTS (SELECT FROM open_deals WHERE id = 1 AND open) ON CONFLICT DO NOTHING;
`
)

func newPgbench(ctx context.Context, server *localservers.Postgres, dir string) (*pgbench, error) {
	program, err := besidePostgres(server.PID(), "pgbench")
	if err != nil {
		return nil, err
	}
	address, err := server.EnsureDatabase(ctx, "pgbench")
	if err != nil {
		return nil, err
	}
	p := &pgbench{program: program, insert: filepath.Join(dir, "insert.sql"), guarded: filepath.Join(dir, "guarded.sql")}
	if p.url, err = url.Parse(address); err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.insert, []byte(insertScript), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.guarded, []byte(guardedScript), 0o644); err != nil {
		return nil, err
	}
	return p, p.prepare(ctx)
}

// prepare creates the tables. Autovacuum is off for the tables "inserted" and "guarded": it could
// run while the product is measured, and its CPU time would count as the product's.
func (p *pgbench) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.url.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `
		CREATE TABLE inserted (body bytea) WITH (autovacuum_enabled = off);
		CREATE TABLE open_deals (id bigint PRIMARY KEY, open boolean NOT NULL);
		INSERT INTO open_deals VALUES (1, true);
		CREATE TABLE guarded (deal bigint, party int, body bytea, PRIMARY KEY (deal, party)) WITH (autovacuum_enabled = off)`)
	return err
}

// inserts runs INSERTs of 64-byte rows for d, rounded down to whole seconds, but for at least
// 1 s. The result ms is the mean latency.
func (p *pgbench) inserts(ctx context.Context, clients int, d time.Duration) (perSecond, ms float64, err error) {
	return p.run(ctx, clients, "-f", p.insert, "-T", strconv.Itoa(max(1, int(d.Seconds()))))
}

// guardedInserts inserts n rows from 64 clients and returns the INSERTs per second. It rounds
// n up to a multiple of 64. Each INSERT also checks that deal 1 in the table open_deals is open.
func (p *pgbench) guardedInserts(ctx context.Context, n int) (perSecond float64, err error) {
	conn, err := pgx.Connect(ctx, p.url.String())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "TRUNCATE guarded"); err != nil {
		return 0, err
	}
	each := (n + 63) / 64
	perSecond, _, err = p.run(ctx, 64, "-f", p.guarded, "-D", "n=-1", "-t", strconv.Itoa(each))
	if err != nil {
		return 0, err
	}
	var rows int
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM guarded").Scan(&rows); err != nil {
		return 0, err
	}
	if rows != each*64 {
		return 0, fmt.Errorf("pgbench inserted %d rows into the table \"guarded\", want %d", rows, each*64)
	}
	return perSecond, nil
}

var (
	tpsLine     = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	latencyLine = regexp.MustCompile(`(?m)^latency average = ([0-9.]+) ms`)
)

func (p *pgbench) run(ctx context.Context, clients int, args ...string) (perSecond, ms float64, err error) {
	args = append([]string{"-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2))}, args...)
	cmd := exec.CommandContext(ctx, p.program, args...)
	password, _ := p.url.User.Password()
	cmd.Env = append(os.Environ(), "PGHOST="+p.url.Hostname(), "PGPORT="+p.url.Port(),
		"PGUSER="+p.url.User.Username(), "PGPASSWORD="+password, "PGDATABASE="+filepath.Base(p.url.Path))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("pgbench: %w; it printed:\n%s", err, out)
	}
	tps, latency := tpsLine.FindSubmatch(out), latencyLine.FindSubmatch(out)
	if tps == nil || latency == nil {
		return 0, 0, fmt.Errorf("the output of pgbench lacks tps or latency:\n%s", out)
	}
	perSecond, _ = strconv.ParseFloat(string(tps[1]), 64)
	ms, _ = strconv.ParseFloat(string(latency[1]), 64)
	return perSecond, ms, nil
}

func besidePostgres(pid int, name string) (string, error) {
	postgres, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(postgres), name), nil
}
