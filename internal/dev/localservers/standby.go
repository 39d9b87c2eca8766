package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

const standbyName = "standby"

// StartStandby starts a streaming standby of p from a new base backup, and returns when the
// standby answers. Replication is asynchronous until p.Synchronous makes it synchronous.
func (p *Postgres) StartStandby(ctx context.Context, o Options) (*Postgres, error) {
	b, err := p.BaseBackup(ctx)
	if err != nil {
		return nil, err
	}
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=%s", p.port, pgUser, p.password, standbyName)
	return b.start(ctx, o, "standby.signal", "primary_conninfo = '"+conninfo+"'")
}

// Backup is a base backup of a server. It can be restored only once, because the restored
// server runs on the files of the backup.
type Backup struct {
	of  *Postgres
	dir *serverDir
}

// BaseBackup copies the server's files with pg_basebackup. The caller must call Restore or
// Close on the backup.
func (p *Postgres) BaseBackup(ctx context.Context) (*Backup, error) {
	dir, err := openServerDir(Options{}, "postgres", p.acct)
	if err != nil {
		return nil, err
	}
	b := &Backup{p, dir}
	cmd := p.acct.command(dir, filepath.Join(p.programs, "pg_basebackup"),
		"-D", dir.join("data"), "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", pgUser, "-w", "-X", "stream", "-c", "fast", "--no-sync")
	cmd.Env = append(cmd.Env, "PGPASSWORD="+p.password)
	if err := run(ctx, cmd); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close removes the backup's files.
func (b *Backup) Close() error { return b.dir.remove() }

// Restore starts a server on the backup and returns when the server accepts writes. The
// server first replays the write-ahead log up to a point in time. The parameters restoreCommand
// and until are the values of Postgres's settings restore_command and recovery_target_time.
func (b *Backup) Restore(ctx context.Context, o Options, restoreCommand, until string) (*Postgres, error) {
	p, err := b.start(ctx, o, "recovery.signal", "restore_command = '"+restoreCommand+"'",
		"recovery_target_time = '"+until+"'", "recovery_target_action = 'promote'")
	if err != nil {
		return nil, err
	}
	for {
		conn, err := pgx.Connect(ctx, PrimaryURL("postgres", p))
		if err == nil {
			return p, conn.Close(ctx)
		}
		if !wait(ctx, pollEvery) {
			return nil, errors.Join(err, p.Close())
		}
	}
}

// start starts a server on the backup. The parameter signal is the name of the signal file:
// recovery.signal or standby.signal. start turns synchronous replication off: the backup may have
// it turned on, but the new server has no standby.
func (b *Backup) start(ctx context.Context, o Options, signal string, settings ...string) (*Postgres, error) {
	if err := b.configure(signal, append(settings, "synchronous_standby_names = ''")); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return startPostgresIn(ctx, o, b.of.acct, b.dir)
}

// configure writes the settings to postgresql.auto.conf, which takes precedence over postgresql.conf.
// It also writes the signal file, and the file with the original server's password.
func (b *Backup) configure(signal string, settings []string) error {
	f, err := os.OpenFile(b.dir.join("data/postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close(),
		os.WriteFile(b.dir.join("password"), []byte(b.of.password+"\n"), 0o600),
		os.WriteFile(b.dir.join("data/"+signal), nil, 0o600), b.of.acct.own(b.dir.join("data/"+signal)))
}

// Synchronous sets whether a commit on p waits until the standby confirms it.
func (p *Postgres) Synchronous(ctx context.Context, on bool) error {
	names := ""
	if on {
		names = standbyName
	}
	return p.admin(ctx, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'", "SELECT pg_reload_conf()")
}

// Followed waits until the synchronous standby streams the write-ahead log from p. It returns
// an error if ctx ends first.
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

// Promote makes the standby p a primary and waits until p accepts writes, for at most 60 s. A
// timeout is not an error.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.admin(ctx, "SELECT pg_promote(true, 60)")
}

// PrimaryURL returns a connection URL of a database. A client that uses the URL connects to the
// server that accepts writes. All servers must have the same password: a standby and a restored
// backup have the password of the original server.
func PrimaryURL(database string, servers ...*Postgres) string {
	var ports []int
	for _, p := range servers {
		ports = append(ports, p.port)
	}
	return postgresURL(servers[0].password, database, "&target_session_attrs=read-write", ports...)
}
