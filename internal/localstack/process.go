package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localservers/child"
)

// process is one replica of a binary: where it listens, and the process that
// runs at the moment.
type process struct {
	name, kind string
	log        string         // path
	ports      map[string]int // by the name of the environment variable
	fixed      map[string]int // ports that were asked for

	mu  sync.Mutex
	bin string // directory of the binary
	run *run   // the last one; nil before the first start
}

// run is one life of a process.
type run struct {
	*child.Process
	asked atomic.Bool // its end was asked for
}

// listens are the environment variables by which a kind is told where to
// listen, the admin port first.
var listens = map[string][]string{
	LogServer:      {"FAIRPACT_ADMIN_LISTEN", "FAIRPACT_READ_LISTEN", "FAIRPACT_APPEND_LISTEN"},
	DealAPI:        {"FAIRPACT_ADMIN_LISTEN", "FAIRPACT_LISTEN"},
	DeadlineWorker: {"FAIRPACT_ADMIN_LISTEN"},
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (p *process) url(variable string) string { return "http://" + loopback(p.ports[variable]) }

// pickPorts gives the process its ports, which it keeps over restarts.
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

// start runs the binary and returns when /readyz answers 200. env is computed
// again for each try, as the first start may have to change ports.
func (p *process) start(ctx context.Context, env func() []string, onEnd func(Failure)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && p.run.Running() {
		return fmt.Errorf("%s runs already", p.name)
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

var errPortTaken = errors.New("a port was taken in between")

func (p *process) startOnce(ctx context.Context, program string, env []string, onEnd func(Failure)) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	offset, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	for _, variable := range listens[p.kind] {
		cmd.Env = append(cmd.Env, variable+"="+loopback(p.ports[variable]))
	}
	proc, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	this := &run{Process: proc}
	p.run = this
	if err := p.waitReady(ctx, proc); err != nil {
		proc.Kill()
		said, _ := tail(p.log, offset, 20)
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
			return fmt.Errorf("it ended (%v)", proc.Err())
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// end marks the end as asked for and gives the run if there is one.
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

// tail gives the last lines of a file, those after offset.
func tail(path string, offset int64, lines int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	data := make([]byte, min(end-offset, 64<<10))
	if _, err := f.ReadAt(data, end-int64(len(data))); err != nil && err != io.EOF {
		return "", err
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n"), nil
}

// Tail gives the last lines of a log file.
func Tail(path string, lines int) (string, error) { return tail(path, 0, lines) }
