// Package child starts processes that end when their parent ends, even if SIGKILL ends the
// parent. The package needs Linux, because it uses the parent-death signal (prctl(2)).
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
	err  error // the result of cmd.Wait; valid once done is closed
}

// starter returns a channel. Functions sent to the channel run on one locked OS thread, which
// lives as long as this process. The kernel sends the parent-death signal when the thread that
// started the child ends, and Go may end any unlocked thread.
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

// Start starts cmd. The kernel sends onParentDeath to the child when this process ends. The
// child has its own process group, so a Ctrl-C in the terminal reaches only this process.
// This process can then stop its children in order.
//
// Standard output and error of cmd should be files, because a pipe breaks when this process
// ends.
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

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process still runs.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err waits for the end of the process and returns the error of exec.Cmd.Wait, which is nil
// for exit status 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends sig if the process still runs.
func (p *Process) Signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
}

// Kill sends SIGKILL and waits for the end of the process.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop sends sig and waits for the end of the process. If the process still runs after
// `bound`, Stop kills the process and returns an error. A nonzero exit status is not an error.
func (p *Process) Stop(sig syscall.Signal, bound time.Duration) error {
	p.Signal(sig)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s (pid %d) did not stop within %s of the signal %s, so it was killed", p.cmd.Path, p.PID(), bound, sig)
	}
}
