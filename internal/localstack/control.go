package localstack

import (
	"context"
	"syscall"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/localservers"
)

// The methods here take the name of a process, such as "deal-api" or
// "deal-api-2", and panic at one that the stack does not have.

// Start starts a process that was stopped, killed or ended by itself, on the
// ports it had, and returns when it is ready. env ("NAME=value") counts for
// this start alone, and over everything else.
func (s *Stack) Start(ctx context.Context, name string, env ...string) error {
	p := s.mustProcess(name)
	return p.start(ctx, func() []string { return s.environment(p, env) }, func(f Failure) {
		select {
		case s.failed <- f:
		default: // nobody reads them, and there are enough to tell
		}
	})
}

// Exchange has a process run the binary in another directory than Options.Bin,
// from its next start on.
func (s *Stack) Exchange(name, bin string) {
	p := s.mustProcess(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bin = bin
}

// Stop asks a process to end, and kills it after 35 s, which is an error.
func (s *Stack) Stop(name string) error { return s.mustProcess(name).stop() }

// Kill ends a process as kill -9 does.
func (s *Stack) Kill(name string) { s.mustProcess(name).kill() }

// Signal sends a signal to a process, which may end of it.
func (s *Stack) Signal(name string, sig syscall.Signal) {
	if r := s.mustProcess(name).end(); r != nil {
		r.Signal(sig)
	}
}

// Restart stops and starts a process.
func (s *Stack) Restart(ctx context.Context, name string, env ...string) error {
	if err := s.Stop(name); err != nil {
		return err
	}
	return s.Start(ctx, name, env...)
}

// Ended is closed when the process that runs under the name at the moment has
// ended, at a crash point for instance.
func (s *Stack) Ended(name string) <-chan struct{} {
	p := s.mustProcess(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.Done()
}

// Err says how the process that ran last under the name ended: nil for exit
// status 0. It waits for the end.
func (s *Stack) Err(name string) error {
	p := s.mustProcess(name)
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	return run.Err()
}

// PID is the process id of the process that runs under the name, or ran last.
func (s *Stack) PID(name string) int {
	p := s.mustProcess(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.PID()
}

// Failed tells of processes that ended unasked.
func (s *Stack) Failed() <-chan Failure { return s.failed }

// Names gives the names of all processes, in the order of their start.
func (s *Stack) Names() []string {
	var names []string
	for _, p := range s.processes {
		names = append(names, p.name)
	}
	return names
}

// Log is the path of a process's log, over all its starts in this stack.
func (s *Stack) Log(name string) string { return s.mustProcess(name).log }

// BaseURL is the public base URL, that of the first deal-api.
func (s *Stack) BaseURL() string { return s.URL(DealAPI) }

// URL is the public URL of a deal-api.
func (s *Stack) URL(name string) string { return s.mustProcess(name).url("FAIRPACT_LISTEN") }

// AdminURL is where a process serves /healthz, /readyz and /metrics.
func (s *Stack) AdminURL(name string) string {
	return s.mustProcess(name).url("FAIRPACT_ADMIN_LISTEN")
}

// LogReadURL is the public read port of a log-server.
func (s *Stack) LogReadURL(name string) string {
	return s.mustProcess(name).url("FAIRPACT_READ_LISTEN")
}

// LogAppendURL is the private append port of a log-server.
func (s *Stack) LogAppendURL(name string) string {
	return s.mustProcess(name).url("FAIRPACT_APPEND_LISTEN")
}

// AppendSecretFile is the path of the append port's bearer secret.
func (s *Stack) AppendSecretFile() string { return s.state.path(appendSecret) }

// Dir is where keys, secrets and logs lie.
func (s *Stack) Dir() string { return s.state.dir }

// DatabaseURL holds the password of a superuser where Postgres is private.
func (s *Stack) DatabaseURL() string { return s.databaseURL }

// RedisURL holds the password where Redis is private.
func (s *Stack) RedisURL() string { return s.redisURL }

// LogDatabaseURL is likewise of the log's own database, empty where it has none.
func (s *Stack) LogDatabaseURL() string { return s.logDatabaseURL }

// Postgres is the private server, nil where DatabaseURL was given.
func (s *Stack) Postgres() *localservers.Postgres { return s.postgres }

// Redis is the private server, nil where RedisURL was given.
func (s *Stack) Redis() *localservers.Redis { return s.redis }

// Chain is the development beacon's chain.
func (s *Stack) Chain() beacon.Chain { return s.beacon.Chain() }

// BeaconURL is the development beacon's address, as a relay.
func (s *Stack) BeaconURL() string { return s.beaconURL }
