package localservers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const pgUser = "fairpact"

// Postgres is a private Postgres server.
type Postgres struct {
	server
	password string
	programs string // directory of postgres, initdb and pg_basebackup
}

// StartPostgres starts a private Postgres and returns when the server answers. The error is
// a *MissingError if Postgres is not installed. The caller must call Close at the end.
func StartPostgres(ctx context.Context, o Options) (*Postgres, error) {
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := openServerDir(o, "postgres", acct)
	if err != nil {
		return nil, err
	}
	return startPostgresIn(ctx, o, acct, dir)
}

// startPostgresIn runs initdb if dir has no data directory. If startPostgresIn fails, it
// removes a throwaway dir.
func startPostgresIn(ctx context.Context, o Options, acct account, dir *serverDir) (p *Postgres, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.remove())
		}
	}()
	data := dir.join("data")
	major, _ := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	programs, err := findPostgres(strings.TrimSpace(string(major)))
	if err != nil {
		return nil, err
	}
	if major == nil {
		if err := initdb(ctx, o, programs, acct, dir); err != nil {
			return nil, err
		}
	}
	password, err := os.ReadFile(dir.join("password"))
	if err != nil {
		return nil, err
	}
	p = &Postgres{password: strings.TrimSpace(string(password)), programs: programs}
	p.server = server{
		name: "Postgres", acct: acct, dir: dir, log: dir.join("postgres.log"),
		port: o.Port, fixed: o.Port != 0,
		// SIGQUIT is an immediate shutdown: the postmaster also ends its children. The
		// next start recovers from the write-ahead log.
		onDeath: syscall.SIGQUIT,
		stopBy:  syscall.SIGINT, // fast shutdown
		command: func(port int) *exec.Cmd {
			return acct.command(dir, filepath.Join(programs, "postgres"), postgresArgs(o, data, port)...)
		},
		ping: func(ctx context.Context, port int) error {
			conn, err := pgx.Connect(ctx, postgresURL(p.password, "postgres", "", port))
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		},
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// postgresArgs returns the command-line arguments of Postgres. The settings are arguments and
// not in a file, so that they also apply to an existing data directory. If o.Durable is false,
// Postgres does not flush to disk. No other setting here makes Postgres faster than an operator's
// server.
func postgresArgs(o Options, data string, port int) []string {
	settings := []string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(port),
		"unix_socket_directories=", // no Unix sockets, because their paths could be too long
		"max_connections=300",
		"timezone=UTC",
		"log_timezone=UTC",
		"logging_collector=off",
		"cluster_name=fairpact",
	}
	if !o.Durable {
		settings = append(settings, "fsync=off", "full_page_writes=off")
	}
	args := []string{"-D", data}
	for _, s := range append(settings, o.Settings...) {
		args = append(args, "-c", s)
	}
	return args
}

func initdb(ctx context.Context, o Options, programs string, acct account, dir *serverDir) error {
	// The data directory is named data.new until it is complete, so that the next start
	// repeats an interrupted initdb.
	fresh, password := dir.join("data.new"), dir.join("password")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.WriteFile(password, []byte(randomHex(16)+"\n"), 0o600); err != nil {
		return err
	}
	if err := acct.own(password); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", pgUser, "--auth=scram-sha-256", "--pwfile=" + password,
		"--encoding=UTF8", "--no-locale", "--no-instructions"}
	if !o.Durable {
		args = append(args, "--no-sync")
	}
	if err := run(ctx, acct.command(dir, filepath.Join(programs, "initdb"), args...)); err != nil {
		return err
	}
	return os.Rename(fresh, dir.join("data"))
}

// postgresURL returns the connection URL of a database. A client tries the servers at the
// ports in order. All servers have the same password. `query` is empty or starts with "&".
func postgresURL(password, database, query string, ports ...int) string {
	var hosts []string
	for _, port := range ports {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", port))
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(pgUser, password), Host: strings.Join(hosts, ","), Path: "/" + database, RawQuery: "sslmode=disable" + query}
	return u.String()
}

// URL returns the connection URL of a database, with the superuser's password.
func (p *Postgres) URL(database string) string { return postgresURL(p.password, database, "", p.port) }

// AdminURL returns the URL of the database named postgres. Connect to it to create other
// databases.
func (p *Postgres) AdminURL() string { return p.URL("postgres") }

// DataDir returns the data directory of the server.
func (p *Postgres) DataDir() string { return p.dir.join("data") }

// EnsureDatabase creates a database if it does not exist, and returns its URL.
func (p *Postgres) EnsureDatabase(ctx context.Context, name string) (string, error) {
	err := p.admin(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "42P04" { // duplicate_database
		err = nil
	}
	return p.URL(name), err
}

func (p *Postgres) admin(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.AdminURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
