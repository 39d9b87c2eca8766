// Package child starts processes that cannot outlive the one that started
// them, not even when that one is ended by kill -9.
//
// Linux only: it rests on the parent-death signal of prctl(2).
package child

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is a started child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read only after done
}

// starter hands functions to one OS thread that lives as long as the process.
// The kernel sends the parent-death signal when the thread that forked ends,
// and Go ends threads as it likes; this one it cannot.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// Start starts cmd in a process group of its own, so that a Ctrl-C in the
// terminal reaches only the parent, which then stops its children in order.
// The kernel sends onParentDeath to the child as soon as the parent is gone.
//
// Standard output and error of cmd should be files: a pipe is copied by this
// process and would break with it.
func Start(cmd *exec.Cmd, onParentDeath syscall.Signal) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = onParentDeath

	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and has been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err says how an ended process ended: nil for exit status 0. It blocks until
// the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends sig; a process that has ended already is no error.
func (p *Process) Signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
}

// Kill ends the process by SIGKILL and waits for it.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop sends sig and waits. After bound it kills, and says so in the error;
// how the process ended is otherwise no error.
func (p *Process) Stop(sig syscall.Signal, bound time.Duration) error {
	p.Signal(sig)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s (pid %d) did not stop within %s of %s and was killed", p.cmd.Path, p.PID(), bound, sig)
	}
}
