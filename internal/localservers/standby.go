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

	"github.com/fairpact/fairpact/internal/localservers/child"
)

// StandbyName is what a standby calls itself to its primary.
const StandbyName = "standby"

// StartStandby makes a base backup of p, starts it as a streaming standby and
// returns when it answers. It follows p asynchronously until p.Synchronous.
func (p *Postgres) StartStandby(ctx context.Context, o Options) (*Postgres, error) {
	dir, err := openServerDir(o, "postgres", p.acct)
	if err != nil {
		return nil, err
	}
	s, err := p.startStandbyIn(ctx, o, dir)
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return s, nil
}

func (p *Postgres) startStandbyIn(ctx context.Context, o Options, dir *serverDir) (*Postgres, error) {
	if err := p.BaseBackup(ctx, dir.join("data")); err != nil {
		return nil, err
	}
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=%s", p.port, pgUser, p.password, StandbyName)
	err := errors.Join(
		// It waits for no standby of its own after a promotion.
		p.configure(dir.join("data"), "primary_conninfo = '"+conninfo+"'", "synchronous_standby_names = ''"),
		p.mark(dir.join("data/standby.signal")),
	)
	if err != nil {
		return nil, err
	}
	return p.startCopy(ctx, o, dir)
}

// StartRestored starts a server of its own on a base backup of p in o.Dir/data, which
// replays the write-ahead log from an archive up to a moment and is then promoted.
// restoreCommand and target are the settings restore_command and
// recovery_target_time.
func (p *Postgres) StartRestored(ctx context.Context, o Options, restoreCommand, target string) (*Postgres, error) {
	dir, err := openServerDir(o, "postgres", p.acct)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		p.configure(dir.join("data"), "restore_command = '"+restoreCommand+"'", "recovery_target_time = '"+target+"'",
			"recovery_target_action = 'promote'", "archive_mode = off", "synchronous_standby_names = ''"),
		p.mark(dir.join("data/recovery.signal")),
	)
	if err != nil {
		return nil, err
	}
	return p.startCopy(ctx, o, dir)
}

// startCopy starts a server on a copy of p's data, which has p's password.
func (p *Postgres) startCopy(ctx context.Context, o Options, dir *serverDir) (*Postgres, error) {
	if err := os.WriteFile(dir.join("password"), []byte(p.password+"\n"), 0o600); err != nil {
		return nil, err
	}
	installs, err := findPostgres(ctx)
	if err != nil {
		return nil, err
	}
	return startPostgresIn(ctx, o, installs, p.acct, dir)
}

// BaseBackup copies the cluster's files into a directory, which must not exist or
// be empty.
func (p *Postgres) BaseBackup(ctx context.Context, to string) error {
	real, err := filepath.EvalSymlinks(p.program) // PATH may have a link to postgres alone
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(real), "pg_basebackup")
	cmd := exec.Command(program, "-D", to, "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", pgUser, "-w", "-X", "stream", "-c", "fast", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = filepath.Dir(to), append(cleanEnv(p.dir.path, program), "PGPASSWORD="+p.password), p.acct.attr()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
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
		return fmt.Errorf("%s: %w; it said:\n%s", program, err, said.String())
	}
	return nil
}

// Synchronous makes commits wait until the standby has them, or no longer.
func (p *Postgres) Synchronous(ctx context.Context, on bool) error {
	names := ""
	if on {
		names = StandbyName
	}
	return p.admin(ctx, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'", "SELECT pg_reload_conf()")
}

// Followed returns when the synchronous standby streams what p commits.
func (p *Postgres) Followed(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.AdminURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		var streams bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync')").Scan(&streams)
		if err != nil || streams {
			return err
		}
		if !wait(ctx, pollEvery) {
			return ctx.Err()
		}
	}
}

// Promote makes a standby a primary and returns when it takes writes.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.admin(ctx, "SELECT pg_promote(true, 60)")
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

// PrimaryURL is the connection URL of a database on whichever of the servers
// takes writes. They have one password, as a server and its copies do.
func PrimaryURL(database string, servers ...*Postgres) string {
	var hosts []string
	for _, p := range servers {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", p.port))
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(pgUser, servers[0].password), Host: strings.Join(hosts, ","), Path: "/" + database,
		RawQuery: "sslmode=disable&target_session_attrs=read-write",
	}
	return u.String()
}

// configure adds settings to those that win over postgresql.conf.
func (p *Postgres) configure(data string, settings ...string) error {
	f, err := os.OpenFile(filepath.Join(data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func (p *Postgres) mark(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return p.acct.own(path)
}
