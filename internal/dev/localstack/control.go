package localstack

import (
	"context"
	"syscall"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// A method that takes the name of a process, such as "deal-api" or "deal-api-2", panics if
// the stack has no such process.

// Start starts a process that has ended, on the same ports, and returns when the process is
// ready. env ("NAME=value") applies to this start only and takes precedence over Options.Env.
func (s *Stack) Start(ctx context.Context, name string, env ...string) error {
	p := s.mustProcess(name)
	return p.start(ctx, func() []string { return s.environment(p, env) }, func(f Failure) {
		select {
		case s.failed <- f:
		default: // the channel is full, because nobody reads it: drop the Failure
		}
	})
}

// Exchange sets the directory of the binary for all later starts of a process. The default is
// Options.Bin.
func (s *Stack) Exchange(name, bin string) {
	p := s.mustProcess(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bin = bin
}

// Stop sends SIGTERM to a process and waits for its end. If the process still runs after 35 s,
// Stop kills it and returns an error.
func (s *Stack) Stop(name string) error { return s.mustProcess(name).stop() }

// Kill ends a process by SIGKILL and waits for its end.
func (s *Stack) Kill(name string) { s.mustProcess(name).kill() }

// Signal sends a signal to a process. After a signal, the stack sends no Failure when this run
// of the process ends.
func (s *Stack) Signal(name string, sig syscall.Signal) {
	if r := s.mustProcess(name).end(); r != nil {
		r.Signal(sig)
	}
}

// Restart stops a process and starts it again. env is passed to Start.
func (s *Stack) Restart(ctx context.Context, name string, env ...string) error {
	if err := s.Stop(name); err != nil {
		return err
	}
	return s.Start(ctx, name, env...)
}

// Ended returns a channel that is closed when the current run of the process has
// ended, for example at a crash point (package crash).
func (s *Stack) Ended(name string) <-chan struct{} {
	return s.mustProcess(name).last().Done()
}

// Err waits for the end of the current or last run of the process. It returns the error of the
// run, or nil if the exit status was 0.
func (s *Stack) Err(name string) error { return s.mustProcess(name).last().Err() }

// PID returns the process id of the current or last run.
func (s *Stack) PID(name string) int { return s.mustProcess(name).last().PID() }

// Failed returns a channel that gets a Failure for each process that ends before the stack
// stops, kills or signals it.
func (s *Stack) Failed() <-chan Failure { return s.failed }

// Names returns the names of all processes, in the order of their start.
func (s *Stack) Names() []string {
	var names []string
	for _, p := range s.processes {
		names = append(names, p.name)
	}
	return names
}

// Log returns the path of the log file to which all runs of a process in this stack write.
func (s *Stack) Log(name string) string { return s.mustProcess(name).log }

// BaseURL returns the public URL of the first deal-api.
func (s *Stack) BaseURL() string { return s.URL(DealAPI) }

// URL returns the public URL of a deal-api.
func (s *Stack) URL(name string) string { return s.mustProcess(name).url("FAIRPACT_LISTEN") }

// AdminURL returns the URL on which a process serves /healthz, /readyz and /metrics.
func (s *Stack) AdminURL(name string) string {
	return s.mustProcess(name).url("FAIRPACT_ADMIN_LISTEN")
}

// LogReadURL returns the URL of the public read port of a log-server.
func (s *Stack) LogReadURL(name string) string {
	return s.mustProcess(name).url("FAIRPACT_READ_LISTEN")
}

// LogAppendURL returns the URL of the private append port of a log-server.
func (s *Stack) LogAppendURL(name string) string {
	return s.mustProcess(name).url("FAIRPACT_APPEND_LISTEN")
}

// AppendSecretFile returns the path of the append port's bearer secret.
func (s *Stack) AppendSecretFile() string { return s.state.path(appendSecret) }

// Dir returns the directory of keys, secrets and logs.
func (s *Stack) Dir() string { return s.state.dir }

// DatabaseURL returns the URL of the product's database, with the password.
func (s *Stack) DatabaseURL() string { return s.databaseURL }

// RedisURL returns the URL of Redis, with the password.
func (s *Stack) RedisURL() string { return s.redisURL }

// LogDatabaseURL returns the URL of the transparency log's separate database, or "" if the log
// is in the product's database.
func (s *Stack) LogDatabaseURL() string { return s.logDatabaseURL }

// Postgres returns the private Postgres server, or nil if Options.DatabaseURL is set.
func (s *Stack) Postgres() *localservers.Postgres { return s.postgres }

// Redis returns the private Redis server, or nil if Options.RedisURL is set.
func (s *Stack) Redis() *localservers.Redis { return s.redis }

// Chain returns the chain of the development beacon.
func (s *Stack) Chain() drand.Chain { return s.beacon.Chain() }

// SignRound returns the signature of a round of the development beacon, even before the round is published.
func (s *Stack) SignRound(round int64) []byte { return s.beacon.Sign(round) }

// BeaconURL returns the URL of the development beacon, which has the API of a drand relay.
func (s *Stack) BeaconURL() string { return s.beaconURL }
