package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/localservers/child"
)

// server is what Postgres and Redis have in common: a child process on a
// loopback port, restartable there.
type server struct {
	name    string // for messages
	acct    account
	dir     *serverDir
	log     string // path of the log file
	port    int
	fixed   bool // the port may no longer change: someone knows it
	onDeath syscall.Signal
	stopBy  []syscall.Signal // tried in turn, before SIGKILL

	command func(port int) *exec.Cmd
	ping    func(ctx context.Context, port int) error

	proc *child.Process
}

var errPortTaken = errors.New("the port was taken in between")

// start starts the process and returns when it answers.
func (s *server) start(ctx context.Context) error {
	if s.proc != nil && s.proc.Running() {
		return fmt.Errorf("%s runs already (pid %d)", s.name, s.proc.PID())
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
		// With a fixed port, or a predecessor that is still on its way out,
		// waiting is what helps: a free port has just as many tries.
		if !errors.Is(err, errPortTaken) || (!s.fixed && try == portTries) {
			return err
		}
		if s.fixed && !wait(ctx, pollEvery) {
			return err
		}
	}
}

func (s *server) startOnce(ctx context.Context) error {
	logFile, offset, err := openLog(s.log)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := s.command(s.port)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = s.acct.attr()
	s.proc, err = child.Start(cmd, s.onDeath)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	var last error
	for {
		if last = s.ping(ctx, s.port); last == nil && s.proc.Running() {
			return nil
		}
		select {
		case <-s.proc.Done():
			said := logSince(s.log, offset)
			err := fmt.Errorf("%s ended at its start (%v); it said:\n%s", s.name, s.proc.Err(), said)
			for _, sign := range []string{"ddress already in use", `"postmaster.pid" already exists`, "pre-existing shared memory block"} {
				if strings.Contains(said, sign) {
					return fmt.Errorf("%w: %w", errPortTaken, err)
				}
			}
			return err
		case <-ctx.Done():
			s.proc.Kill()
			return fmt.Errorf("%s did not answer in time (%w; last: %v); it said:\n%s", s.name, ctx.Err(), last, logSince(s.log, offset))
		case <-time.After(pollEvery):
		}
	}
}

// wait pauses for d and reports false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Port is the loopback port. It stays the same over restarts.
func (s *server) Port() int { return s.port }

// PID is the id of the server's process.
func (s *server) PID() int { return s.proc.PID() }

// Done is closed when the server's process has ended.
func (s *server) Done() <-chan struct{} { return s.proc.Done() }

// LogFile is the path of the server's log.
func (s *server) LogFile() string { return s.log }

// Stop stops the process cleanly, and by force after a bound. The data stay:
// Restart brings them back. Stopping a stopped server is no error.
func (s *server) Stop() error {
	if !s.proc.Running() {
		return nil
	}
	for _, sig := range s.stopBy[:len(s.stopBy)-1] {
		s.proc.Signal(sig)
		select {
		case <-s.proc.Done():
			return nil
		case <-time.After(stopBound):
		}
	}
	return s.proc.Stop(s.stopBy[len(s.stopBy)-1], stopBound)
}

// Kill ends the process as a crash would.
func (s *server) Kill() { s.proc.Kill() }

// Restart stops the server, if it runs, and starts it on the same port.
func (s *server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Close stops the server and removes its directory if it was a throwaway, whose
// last state nobody needs on disk.
func (s *server) Close() error {
	stop := s.Stop
	if s.dir.lock != nil {
		stop = func() error { return s.proc.Stop(s.onDeath, stopBound) }
	}
	return errors.Join(stop(), s.dir.remove())
}

// cleanEnv is the environment of a server: nothing of ours, PG* least of all.
func cleanEnv(home string, program string) []string {
	return []string{
		"PATH=" + filepath.Dir(program) + string(os.PathListSeparator) + "/usr/local/bin:/usr/bin:/bin",
		"HOME=" + home, "LANG=C", "LC_ALL=C", "TZ=UTC",
	}
}
