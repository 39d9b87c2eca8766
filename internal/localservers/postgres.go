package localservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/localservers/child"
)

// pgUser is the superuser of a private Postgres.
const pgUser = "fairpact"

// Postgres is a private Postgres server.
type Postgres struct {
	server
	password string
	program  string // path of postgres
}

// StartPostgres starts a private Postgres and returns when it answers. The error is
// a *MissingError if none is installed. Call Close at the end.
func StartPostgres(ctx context.Context, o Options) (*Postgres, error) {
	installs, err := findPostgres(ctx)
	if err != nil {
		return nil, err
	}
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := openServerDir(o, "postgres", acct)
	if err != nil {
		return nil, err
	}
	p, err := startPostgresIn(ctx, o, installs, acct, dir)
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return p, nil
}

func startPostgresIn(ctx context.Context, o Options, installs []pgInstall, acct account, dir *serverDir) (*Postgres, error) {
	in, err := initCluster(ctx, o, installs, acct, dir)
	if err != nil {
		return nil, err
	}
	password, err := os.ReadFile(dir.join("password"))
	if err != nil {
		return nil, err
	}
	p := &Postgres{password: strings.TrimSpace(string(password)), program: in.postgres}
	p.server = server{
		name: "Postgres", acct: acct, dir: dir, log: dir.join("postgres.log"),
		port: o.Port, fixed: o.Port != 0,
		// Immediate shutdown: the postmaster takes its children with it, and
		// the next start recovers from the log.
		onDeath: syscall.SIGQUIT,
		stopBy:  []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}, // fast, then immediate
		command: func(port int) *exec.Cmd {
			cmd := exec.Command(in.postgres, postgresArgs(o, dir.join("data"), port)...)
			cmd.Dir, cmd.Env = dir.path, cleanEnv(dir.path, in.postgres)
			return cmd
		},
		ping: func(ctx context.Context, port int) error {
			conn, err := pgx.Connect(ctx, p.url(port, "postgres"))
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

// postgresArgs returns the settings of the command line, which apply to an old data
// directory too. None of them makes the server faster than an operator's, except that
// without Durable nothing is flushed.
func postgresArgs(o Options, data string, port int) []string {
	settings := []string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(port),
		"unix_socket_directories=", // none: a path may be too long, and /tmp gets no lock file
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

// initCluster makes the data directory if there is none yet, and returns the
// installation for it.
func initCluster(ctx context.Context, o Options, installs []pgInstall, acct account, dir *serverDir) (pgInstall, error) {
	version, err := os.ReadFile(dir.join("data/PG_VERSION"))
	if err == nil {
		had, _ := strconv.Atoi(strings.TrimSpace(string(version)))
		for _, in := range installs {
			if in.major == had {
				return in, nil
			}
		}
		return pgInstall{}, fmt.Errorf("%s was made by Postgres %d, but the one installed is %d: install postgresql-%d, or remove that directory to start empty",
			dir.join("data"), had, installs[0].major, had)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return pgInstall{}, err
	}
	var errs []error
	for _, in := range installs {
		err := initdb(ctx, o, in, acct, dir)
		if err == nil {
			return in, nil
		}
		errs = append(errs, err)
	}
	return pgInstall{}, errors.Join(errs...)
}

func initdb(ctx context.Context, o Options, in pgInstall, acct account, dir *serverDir) error {
	// It has another name until it is complete: an interrupted initdb starts again.
	fresh := dir.join("data.new")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	pwfile := dir.join("password")
	if err := os.WriteFile(pwfile, []byte(randomHex(16)+"\n"), 0o600); err != nil {
		return err
	}
	if err := acct.own(pwfile); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", pgUser, "--auth=scram-sha-256", "--pwfile=" + pwfile,
		"--encoding=UTF8", "--no-locale", "--no-instructions"}
	if !o.Durable {
		args = append(args, "--no-sync")
	}
	said, offset, err := child.OpenLog(dir.join("initdb.log"))
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(in.initdb, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir.path, cleanEnv(dir.path, in.initdb), acct.attr()
	cmd.Stdout, cmd.Stderr = said, said
	proc, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()
		return ctx.Err()
	}
	if err := proc.Err(); err != nil {
		return fmt.Errorf("%s: %w; the end of its log:\n%s", in.initdb, err, tail(said.Name(), offset))
	}
	return os.Rename(fresh, dir.join("data"))
}

func (p *Postgres) url(port int, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(pgUser, p.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// URL returns the connection URL of a database, with the superuser's password.
func (p *Postgres) URL(database string) string { return p.url(p.port, database) }

// AdminURL returns the URL of the database postgres, from which others are made.
func (p *Postgres) AdminURL() string { return p.URL("postgres") }

// DataDir returns the directory of the cluster's files.
func (p *Postgres) DataDir() string { return filepath.Join(p.dir.path, "data") }

// EnsureDatabase makes a database if there is none of this name, and returns its URL.
func (p *Postgres) EnsureDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, p.AdminURL())
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&there); err != nil {
		return "", err
	}
	if !there {
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
			return "", err
		}
	}
	return p.URL(name), nil
}
