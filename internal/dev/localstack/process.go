package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localservers/child"
)

// process is one replica of a binary.
type process struct {
	name, kind string
	log        string
	ports      map[string]int // by environment variable, for example "FAIRPACT_LISTEN"
	fixed      map[string]int // the ports that Options sets; the same keys as in ports

	mu  sync.Mutex
	bin string // directory of the binary
	run *run   // nil before the first start
}

type run struct {
	*child.Process
	asked atomic.Bool // the stack stopped, killed or signalled the process
}

// listens maps a binary to the environment variables of its listen addresses, the admin address first.
var listens = map[string][]string{
	LogServer:      {"FAIRPACT_ADMIN_LISTEN", "FAIRPACT_READ_LISTEN", "FAIRPACT_APPEND_LISTEN"},
	DealAPI:        {"FAIRPACT_ADMIN_LISTEN", "FAIRPACT_LISTEN"},
	DeadlineWorker: {"FAIRPACT_ADMIN_LISTEN"},
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (p *process) url(variable string) string { return "http://" + loopback(p.ports[variable]) }

// pickPorts picks a free port for each listen address without a fixed port. Restarts keep the ports.
func (p *process) pickPorts() error {
	p.ports = map[string]int{}
	for _, variable := range listens[p.kind] {
		port, err := p.fixed[variable], error(nil)
		if port == 0 {
			port, err = localservers.FreePort()
		}
		if err != nil {
			return err
		}
		p.ports[variable] = port
	}
	return nil
}

// start runs the binary and returns when /readyz answers 200. If another process took one of
// the ports, the first start of p picks other ports and tries again; a restart returns the
// error. Each try calls env, because the environment may contain the ports. onEnd is called if
// the process later ends by itself.
func (p *process) start(ctx context.Context, env func() []string, onEnd func(Failure)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && p.run.Running() {
		return fmt.Errorf("%s is already running (pid %d): stop it first", p.name, p.run.PID())
	}
	first := p.run == nil
	for try := 1; ; try++ {
		if first {
			if err := p.pickPorts(); err != nil {
				return err
			}
		}
		err := p.startOnce(ctx, filepath.Join(p.bin, p.kind), env(), onEnd)
		if err == nil || !first || try == portTries || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

var errPortTaken = errors.New("another process took a port")

func (p *process) startOnce(ctx context.Context, program string, env []string, onEnd func(Failure)) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	out, offset, err := child.OpenLog(p.log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(program)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	for _, variable := range listens[p.kind] {
		cmd.Env = append(cmd.Env, variable+"="+loopback(p.ports[variable]))
	}
	proc, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	this := &run{Process: proc}
	p.run = this
	if err := p.waitReady(ctx, proc); err != nil {
		proc.Kill()
		said, _ := child.Tail(p.log, offset, 20)
		if strings.Contains(said, "address already in use") {
			err = errors.Join(errPortTaken, err)
		}
		return fmt.Errorf("%s did not become ready: %w; the end of its log (%s):\n%s", p.name, err, p.log, said)
	}
	go func() {
		if <-proc.Done(); !this.asked.Load() {
			onEnd(Failure{p.name, proc.Err(), p.log})
		}
	}()
	return nil
}

func (p *process) waitReady(ctx context.Context, proc *child.Process) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var last error
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(listens[p.kind][0])+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err != nil {
			last = err
		} else {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Errorf("/readyz answered %s", resp.Status)
		}
		select {
		case <-proc.Done():
			return fmt.Errorf("the process ended (%v)", proc.Err())
		case <-ctx.Done():
			return fmt.Errorf("the last request to /readyz failed: %w; stopped waiting: %w", last, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

func (p *process) last() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// end returns the run that the caller will stop, kill or signal, or nil if the process is not
// running. It sets run.asked, so that the stack does not report a Failure when the run ends.
func (p *process) end() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || !p.run.Running() {
		return nil
	}
	p.run.asked.Store(true)
	return p.run
}

func (p *process) stop() error {
	if r := p.end(); r != nil {
		return r.Stop(syscall.SIGTERM, stopBound)
	}
	return nil
}

func (p *process) kill() {
	if r := p.end(); r != nil {
		r.Kill()
	}
}

// Tail returns the last lines of a log file.
func Tail(path string, lines int) (string, error) { return child.Tail(path, 0, lines) }
