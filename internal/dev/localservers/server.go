package localservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/child"
)

// server is the common part of Postgres and Redis: a child process on a loopback port. The
// port stays the same over restarts.
type server struct {
	name    string
	acct    account
	dir     *serverDir
	log     string
	port    int
	fixed   bool           // the port must not change, because a caller may know it
	onDeath syscall.Signal // sent to the server when this process ends
	stopBy  syscall.Signal

	command func(port int) *exec.Cmd
	ping    func(ctx context.Context, port int) error

	proc *child.Process
}

var errPortTaken = errors.New("another process uses the port or the data directory")

// start starts the process and returns when the server answers. If the port is taken, start
// tries again, for at most startBound. If s.fixed is true, it tries the same port again.
// Otherwise it picks another port each time, at most portTries ports in total.
func (s *server) start(ctx context.Context) error {
	if s.proc != nil && s.proc.Running() {
		return fmt.Errorf("%s is already running (pid %d): stop it first", s.name, s.proc.PID())
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	for try := 1; ; try++ {
		if !s.fixed {
			port, err := FreePort()
			if err != nil {
				return err
			}
			s.port = port
		}
		err := s.startOnce(ctx)
		if err == nil {
			s.fixed = true
			return nil
		}
		if !errors.Is(err, errPortTaken) || (!s.fixed && try == portTries) {
			return err
		}
		// Try a fixed port again: the previous process of this server may still use it.
		if s.fixed && !wait(ctx, pollEvery) {
			return err
		}
	}
}

func (s *server) startOnce(ctx context.Context) error {
	logFile, offset, err := child.OpenLog(s.log)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := s.command(s.port)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	s.proc, err = child.Start(cmd, s.onDeath)
	if err != nil {
		return fmt.Errorf("cannot start the process of %s: %w", s.name, err)
	}
	var last error
	for {
		if last = s.ping(ctx, s.port); last == nil && s.proc.Running() {
			return nil
		}
		select {
		case <-s.proc.Done():
			said := tail(s.log, offset)
			err := fmt.Errorf("%s ended while it was starting (%v); the end of its log:\n%s", s.name, s.proc.Err(), said)
			for _, sign := range []string{"ddress already in use", `"postmaster.pid" already exists`, "pre-existing shared memory block"} {
				if strings.Contains(said, sign) {
					return fmt.Errorf("%w: %w", errPortTaken, err)
				}
			}
			return err
		case <-ctx.Done():
			s.proc.Kill()
			return fmt.Errorf("%s did not answer in time (%w; last error: %v); the end of its log:\n%s", s.name, ctx.Err(), last, tail(s.log, offset))
		case <-time.After(pollEvery):
		}
	}
}

func tail(path string, offset int64) string {
	text, _ := child.Tail(path, offset, 40)
	return text
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Port returns the loopback port, which stays the same over restarts.
func (s *server) Port() int { return s.port }

// PID returns the id of the server's current or last process.
func (s *server) PID() int { return s.proc.PID() }

// Done returns a channel that is closed when the server's process has ended.
func (s *server) Done() <-chan struct{} { return s.proc.Done() }

// LogFile returns the path of the server's log.
func (s *server) LogFile() string { return s.log }

// Stop stops the server cleanly and keeps its files for Restart. If the server still runs
// after 20 s, Stop kills it and returns an error. If the server is not running, Stop does
// nothing.
func (s *server) Stop() error {
	return s.stop(s.stopBy)
}

func (s *server) stop(by syscall.Signal) error {
	if !s.proc.Running() {
		return nil
	}
	return s.proc.Stop(by, stopBound)
}

// Kill ends the process by SIGKILL, as in a crash.
func (s *server) Kill() { s.proc.Kill() }

// Restart stops the server if it runs, and starts it on the same port.
func (s *server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Close stops the server, and removes its directory if that is temporary (see Options.Dir). Nobody
// needs temporary data, so Close then sends the signal onDeath, which stops the server faster.
func (s *server) Close() error {
	by := s.stopBy
	if s.dir.lock != nil {
		by = s.onDeath
	}
	return errors.Join(s.stop(by), s.dir.remove())
}

// FreePort picks ports in this range. By default, outgoing connections on Linux use ports from
// 32768 up, so none of them can take the port of a server while the server restarts.
const firstPort, lastPort = 20000, 32000

// FreePort returns a loopback TCP port on which nothing listens. Another process may take
// the port before the caller listens on it. The caller should then retry with another port.
func FreePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		return port, nil
	}
	return 0, fmt.Errorf("found no free port on 127.0.0.1 between %d and %d: end processes that listen there", firstPort, lastPort)
}
