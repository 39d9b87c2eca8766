package localstack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/dev/localservers"
)

// Stack holds the servers and processes that Start started.
type Stack struct {
	o         Options
	state     *state
	postgres  *localservers.Postgres // nil if Options.DatabaseURL is set
	redis     *localservers.Redis    // nil if Options.RedisURL is set
	beacon    *devbeacon.Server
	beaconURL string
	relay     *http.Server
	witnesses []*witness

	databaseURL, redisURL string
	logDatabaseURL        string // "" if the log is in the product's database

	processes []*process
	failed    chan Failure
}

// Start starts the servers and the binaries of a stack and returns when every binary is
// ready. If a step fails, Start stops everything that it has started. If o.Port is not free, the
// error wraps a *PortTakenError.
func Start(ctx context.Context, o Options) (*Stack, error) {
	st, err := openState(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{o: o, state: st, failed: make(chan Failure, 64)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if s.o.Port != 0 {
		if err := checkPort(s.o.Port); err != nil {
			return err
		}
	}
	for _, name := range []string{serverSecret, appendSecret} {
		if _, err := s.state.secret(name); err != nil {
			return err
		}
	}
	if _, err := OneKey(s.state.path(keySet), "dev://"+s.state.path("dev-key.pem")); err != nil {
		return err
	}
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if err := s.step("migrated the database", func() error {
		_, err := s.Fairpactctl(ctx, "migrate")
		return err
	}); err != nil {
		return err
	}
	if err := s.startBeacon(); err != nil {
		return err
	}
	if s.o.Witnesses > 0 {
		if err := s.step("started the witnesses", func() error { return s.startWitnesses(ctx) }); err != nil {
			return err
		}
	}
	// log-server is first, because deal-api and deadline-worker need its address.
	for _, kind := range []string{LogServer, DealAPI, DeadlineWorker} {
		if err := s.startKind(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) step(what string, do func() error) error {
	begin := time.Now()
	if err := do(); err != nil {
		return err
	}
	if s.o.Progress != nil {
		s.o.Progress(what, time.Since(begin))
	}
	return nil
}

// PortTakenError is returned when Options.Port is not free.
type PortTakenError struct{ Port int }

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d on 127.0.0.1 is taken: end the process that listens there, or choose another port", e.Port)
}

func checkPort(port int) error {
	l, err := net.Listen("tcp4", loopback(port))
	if err != nil {
		return errors.Join(&PortTakenError{port}, err)
	}
	return l.Close()
}

func (s *Stack) startServers(ctx context.Context) error {
	var servers errgroup.Group
	s.databaseURL, s.redisURL = s.o.DatabaseURL, s.o.RedisURL
	if s.databaseURL == "" {
		servers.Go(func() error { return s.step("started Postgres", func() error { return s.startPostgres(ctx) }) })
	}
	if s.redisURL == "" {
		servers.Go(func() error { return s.step("started Redis", func() error { return s.startRedis(ctx) }) })
	}
	return servers.Wait()
}

func (s *Stack) startRedis(ctx context.Context) (err error) {
	if s.redis, err = localservers.StartRedis(ctx, localservers.Options{}); err == nil {
		s.redisURL = s.redis.URL()
	}
	return err
}

func (s *Stack) startPostgres(ctx context.Context) (err error) {
	s.postgres, err = localservers.StartPostgres(ctx, localservers.Options{
		Dir: s.o.PostgresDir, Durable: s.o.PostgresDir != "",
	})
	if err != nil {
		return err
	}
	if s.databaseURL, err = s.postgres.EnsureDatabase(ctx, "fairpact"); err != nil || !s.o.LogDatabase {
		return err
	}
	s.logDatabaseURL, err = s.postgres.EnsureDatabase(ctx, "fairpact_log")
	return err
}

func (s *Stack) startBeacon() error {
	return s.step("started the development beacon", func() error {
		text, err := s.state.secret("beacon-seed")
		if err != nil {
			return err
		}
		seed, err := hex.DecodeString(text)
		if err != nil {
			return fmt.Errorf("%s is not hex (%w): delete the file and start again", s.state.path("beacon-seed"), err)
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.beacon = devbeacon.New(seed)
		s.beaconURL = "http://" + l.Addr().String()
		s.relay = &http.Server{Handler: s.beacon, ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = s.relay.Serve(l) }()
		return nil
	})
}

func (s *Stack) startKind(ctx context.Context, kind string) error {
	replicas, named := s.o.Replicas[kind]
	if !named {
		replicas = 1
	}
	for i := 1; i <= replicas; i++ {
		name := kind
		if i > 1 {
			name += "-" + strconv.Itoa(i)
		}
		p := &process{name: name, kind: kind, log: s.state.path(filepath.Join("log", name+".log")), bin: s.o.Bin, fixed: map[string]int{}}
		if name == DealAPI && s.o.Port != 0 {
			p.fixed["FAIRPACT_LISTEN"] = s.o.Port
		}
		s.processes = append(s.processes, p)
		if err := s.step("started "+name, func() error { return s.Start(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}

const serverSecret, appendSecret, keySet = "server-secret", "append-secret", "dev-keys.json"

// OneKey writes a key set in which the key of the URI signs to a file, and returns the setting that
// names the file.
func OneKey(path, uri string) (setting string, err error) {
	return "FAIRPACT_KEY_SET_FILE=" + path, os.WriteFile(path, fmt.Appendf(nil, `{"keys":[{"uri":%q,"signs_from":0}]}`, uri), 0o600)
}

// environment returns the environment of a process. The values in `extra` come last, so they
// take precedence.
func (s *Stack) environment(p *process, extra []string) []string {
	env := []string{
		"DATABASE_URL=" + s.databaseURL,
		"FAIRPACT_KEY_SET_FILE=" + s.state.path(keySet),
		"FAIRPACT_SERVER_SECRET_FILE=" + s.state.path(serverSecret),
		"FAIRPACT_APPEND_SECRET_FILE=" + s.state.path(appendSecret),
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR", "GORACE"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	if p.kind != LogServer {
		chain := s.beacon.Chain()
		env = append(env,
			"REDIS_URL="+s.redisURL,
			"FAIRPACT_BEACON_RELAYS="+s.beaconURL,
			"FAIRPACT_BEACON_CHAIN_HASH="+chain.Hash,
			"FAIRPACT_BEACON_PUBLIC_KEY="+hex.EncodeToString(chain.PublicKey),
			"FAIRPACT_BEACON_PERIOD="+strconv.FormatInt(chain.Period, 10),
			"FAIRPACT_BEACON_GENESIS="+strconv.FormatInt(chain.Genesis, 10),
			"FAIRPACT_BEACON_GENESIS_SEED="+chain.GenesisSeed,
			"FAIRPACT_BEACON_ID="+chain.BeaconID,
		)
		if log, err := s.process(LogServer); err == nil {
			env = append(env,
				"FAIRPACT_LOG_READ_URL="+log.url("FAIRPACT_READ_LISTEN"),
				"FAIRPACT_LOG_APPEND_URL="+log.url("FAIRPACT_APPEND_LISTEN"))
		}
	}
	if api, err := s.process(DealAPI); err == nil && p.kind == DealAPI {
		env = append(env, "FAIRPACT_PUBLIC_URL="+api.url("FAIRPACT_LISTEN"))
	}
	if p.kind == LogServer {
		if s.logDatabaseURL != "" {
			env = append(env, "DATABASE_URL="+s.logDatabaseURL)
		}
		env = append(env, "FAIRPACT_LOG_KEY=dev://"+s.state.path(logKey), "FAIRPACT_LOG_ORIGIN="+Origin)
		if s.o.Witnesses > 0 {
			env = append(env, "FAIRPACT_WITNESS_POLICY_FILE="+s.state.path(witnessPolicy))
		}
	}
	env = append(env, s.o.Env[""]...)
	env = append(env, s.o.Env[p.kind]...)
	if p.name != p.kind {
		env = append(env, s.o.Env[p.name]...)
	}
	env = append(env, extra...)
	return env
}

func (s *Stack) process(name string) (*process, error) {
	for _, p := range s.processes {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the stack has no process %q", name)
}

func (s *Stack) mustProcess(name string) *process {
	p, err := s.process(name)
	if err != nil {
		panic(err)
	}
	return p
}

// Fairpactctl runs fairpactctl against the stack's databases and returns its output. If
// the command fails, the error also contains the output.
func (s *Stack) Fairpactctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.o.Bin, "fairpactctl"), args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.databaseURL, "FAIRPACT_LOG_DATABASE_URL="+s.logDatabaseURL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("fairpactctl %s: %w; it printed:\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Close stops all binaries and then the servers that they need. It also removes temporary
// files.
func (s *Stack) Close() error {
	var errs []error
	for _, kind := range []string{DeadlineWorker, DealAPI, LogServer} { // the reverse order of Start
		var replicas errgroup.Group
		for _, p := range s.processes {
			if p.kind == kind {
				replicas.Go(p.stop)
			}
		}
		errs = append(errs, replicas.Wait())
	}
	for _, w := range s.witnesses {
		errs = append(errs, w.server.Close())
	}
	if s.relay != nil {
		errs = append(errs, s.relay.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(append(errs, s.state.remove())...)
}
