package localservers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
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

// StartRedis starts a private Redis and returns when it answers. The error is a
// *MissingError if none is installed. Call Close at the end.
func StartRedis(ctx context.Context, o Options) (*Redis, error) {
	program, err := findRedis(ctx)
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
		stopBy:  []syscall.Signal{syscall.SIGTERM},
		command: func(port int) *exec.Cmd {
			// The configuration is on standard input, so that ps does not show the
			// password.
			cmd := exec.Command(program, "-")
			cmd.Stdin = strings.NewReader(redisConfig(port, r.password, o.Settings))
			cmd.Dir, cmd.Env = dir.path, cleanEnv(dir.path, program)
			return cmd
		},
		ping: func(ctx context.Context, port int) error { return r.pingAt(ctx, port) },
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
func (r *Redis) URL() string { return r.urlAt(r.port) }

func (r *Redis) urlAt(port int) string {
	return "redis://:" + r.password + "@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/0"
}

// pingAt sends two commands over its own connection, because the client library
// logs and retries while a server is starting.
func (r *Redis) pingAt(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until)
	}
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", r.password); err != nil {
		return err
	}
	answers := bufio.NewReader(conn)
	for _, want := range []string{"+OK\r\n", "+PONG\r\n"} {
		got, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("Redis answered %q", got)
		}
	}
	return nil
}
