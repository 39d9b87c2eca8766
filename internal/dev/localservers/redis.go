package localservers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Redis is a private Redis server. It keeps nothing on disk, so it is empty after a
// restart.
type Redis struct {
	server
	password string
}

// StartRedis starts a private Redis and returns when the server answers. The error is a
// *MissingError if Redis is not installed. The caller must call Close at the end.
func StartRedis(ctx context.Context, o Options) (*Redis, error) {
	program, err := findRedis()
	if err != nil {
		return nil, err
	}
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := openServerDir(o, "redis", acct)
	if err != nil {
		return nil, err
	}
	r := &Redis{password: cmp.Or(o.Password, randomHex(16))}
	r.server = server{
		name: "Redis", acct: acct, dir: dir, log: dir.join("redis.log"),
		port: o.Port, fixed: o.Port != 0,
		onDeath: syscall.SIGKILL,
		stopBy:  syscall.SIGTERM,
		command: func(port int) *exec.Cmd {
			// The configuration comes from standard input, so that the process list
			// does not show the password.
			cmd := acct.command(dir, program, "-")
			cmd.Stdin = strings.NewReader(redisConfig(port, r.password, o.Settings))
			return cmd
		},
		ping: r.ping,
	}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return r, nil
}

func redisConfig(port int, password string, settings []string) string {
	return fmt.Sprintf("bind 127.0.0.1\nport %d\nunixsocket \"\"\nrequirepass %s\nsave \"\"\nappendonly no\ndaemonize no\nlogfile \"\"\n", port, password) + strings.Join(settings, "\n") + "\n"
}

// URL returns the connection URL, with the password.
func (r *Redis) URL() string { return fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", r.password, r.port) }

// ping uses no client library, because a library would log and retry while the server starts.
func (r *Redis) ping(_ context.Context, port int) error {
	conn, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", r.password); err != nil {
		return err
	}
	const want = "+OK\r\n+PONG\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("Redis answered %q to AUTH and PING, want %q", got, want)
	}
	return nil
}
