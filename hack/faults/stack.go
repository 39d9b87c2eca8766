package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

var (
	processes = []string{"log-server", "log-server-2", "deal-api", "deal-api-2", "deadline-worker", "deadline-worker-2"}
	doors     = []string{"deal-api", "deal-api-2"}
)

func linkNames() (names []string) {
	for _, door := range doors {
		names = append(names, "client>"+door)
	}
	for _, p := range processes {
		names = append(names, p+">postgres")
		if !strings.HasPrefix(p, localstack.LogServer) {
			names = append(names, p+">redis", p+">log append", p+">log read")
		}
	}
	return names
}

// stack runs two replicas of every process. TCP proxies (see link) carry the processes'
// connections to each other, to Postgres and to Redis, and the clients' connections to deal-api.
// The key service is a fake cloud KMS. The beacon relay can fail, hang or return a wrong round.
type stack struct {
	*localstack.Stack
	links map[string]*link
	env   map[string][]string // by process name: the environment variables that s.linked returned
	kms   *kmstest.GCP
	relay *relay

	databases        sync.Mutex // held during a fault of Postgres
	primary, standby *localservers.Postgres
	guard            *localservers.Postgres // keeps the fork guard's record

	clockRand *rand.Rand             // the random source of the clock offsets
	starting  map[string]*sync.Mutex // by process name: held while s.run starts the process
	onFailure func(localstack.Failure)
}

func startStack(ctx context.Context, seed uint64, bin, dir string, onFailure func(localstack.Failure)) (_ *stack, err error) {
	s := &stack{clockRand: rand.New(rand.NewPCG(seed, 0)), links: map[string]*link{}, env: map[string][]string{}, starting: map[string]*sync.Mutex{}, onFailure: onFailure}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.kms, err = kmstest.StartGCP(); err != nil {
		return nil, err
	}
	if s.primary, err = localservers.StartPostgres(ctx, localservers.Options{}); err != nil {
		return nil, err
	}
	if s.guard, err = localservers.StartPostgres(ctx, localservers.Options{}); err != nil {
		return nil, err
	}
	signing, err := localstack.OneKey(filepath.Join(dir, "keys.json"), s.kms.URI(s.kms.NewKey()))
	if err != nil {
		return nil, err
	}
	database, err := s.primary.EnsureDatabase(ctx, "fairpact")
	if err != nil {
		return nil, err
	}
	s.Stack, err = localstack.Start(ctx, localstack.Options{
		Bin:         bin,
		Dir:         dir,
		DatabaseURL: database,
		Replicas:    map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2},
		Env: map[string][]string{"": {
			"FAIRPACT_KEYS_PER_MINUTE=0", "FAIRPACT_DEAL_UNITS_PER_MINUTE=0", "FAIRPACT_KEY_MIB_PER_DAY=0", "FAIRPACT_NETWORK_MIB_PER_DAY=0", "FAIRPACT_LOG_LEVEL=debug", signing,
		}},
	})
	if err != nil {
		return nil, err
	}
	if s.relay, err = startRelay(s.BeaconURL()); err != nil {
		return nil, err
	}
	for _, name := range linkNames() {
		if s.links[name], err = newLink(s.targets(name)...); err != nil {
			return nil, err
		}
	}
	// The links needed the ports of the running processes. Now that the links exist, restart
	// each process with the addresses of its links.
	for _, name := range processes {
		s.starting[name] = &sync.Mutex{}
		if s.env[name], err = s.envThroughLinks(name); err != nil {
			return nil, err
		}
		if err = s.Restart(ctx, name, s.env[name]...); err != nil {
			return nil, err
		}
	}
	if err = s.startStandby(ctx); err != nil {
		return nil, err
	}
	go s.supervise(ctx)
	return s, nil
}

func (s *stack) targets(link string) []string {
	_, to, _ := strings.Cut(link, ">")
	host := func(text string) string {
		u, err := url.Parse(text)
		if err != nil {
			panic(err) // cannot happen: text is a URL of this stack
		}
		return u.Host
	}
	switch to {
	case "postgres":
		return []string{host(s.DatabaseURL())}
	case "redis":
		return []string{host(s.RedisURL())}
	case "log append":
		return []string{host(s.LogAppendURL("log-server")), host(s.LogAppendURL("log-server-2"))}
	case "log read":
		return []string{host(s.LogReadURL("log-server")), host(s.LogReadURL("log-server-2"))}
	}
	return []string{host(s.URL(to))}
}

// envThroughLinks returns environment variables with which a process connects through its links (proxies
// that faults can cut). They also set a clock offset.
func (s *stack) envThroughLinks(name string) (env []string, err error) {
	over := func(variable, text, to string) {
		u, failed := url.Parse(text)
		if err = errors.Join(err, failed); failed == nil {
			u.Host = s.links[name+">"+to].address()
			env = append(env, variable+"="+u.String())
		}
	}
	over("DATABASE_URL", s.DatabaseURL(), "postgres")
	if !strings.HasPrefix(name, localstack.LogServer) {
		over("REDIS_URL", s.RedisURL(), "redis")
		over("FAIRPACT_LOG_APPEND_URL", s.LogAppendURL("log-server"), "log append")
		over("FAIRPACT_LOG_READ_URL", s.LogReadURL("log-server"), "log read")
		env = append(env, "FAIRPACT_BEACON_RELAYS="+s.relay.url)
	} else {
		env = append(env, "FAIRPACT_FORK_GUARD="+s.guard.AdminURL())
	}
	// Each process's clock differs from the machine's clock by at most 4 minutes, which is less
	// than signing.Margin.
	env = append(env, fmt.Sprintf("FAIRPACT_CLOCK_OFFSET=%ds", s.clockRand.IntN(481)-240))
	return env, err
}

func (s *stack) startStandby(ctx context.Context) (err error) {
	s.standby, err = s.primary.StartStandby(ctx, localservers.Options{Settings: []string{"wal_retrieve_retry_interval=100ms"}})
	if err != nil {
		return err
	}
	return s.primary.Synchronous(ctx, true)
}

// failOver kills the primary and promotes the standby. Before the kill, failOver waits until the
// standby has caught up, because a restarted primary may show commits that the standby does not
// have yet. Then failOver cuts the links to Postgres, as when a machine crashes. Without the cut,
// clients could see commits that the standby never gets: when the postmaster dies, the primary's
// sessions stop waiting for the standby.
func (s *stack) failOver(ctx context.Context) error {
	if err := s.primary.Followed(ctx); err != nil {
		return err
	}
	s.toPostgres()
	s.primary.Kill()
	if err := errors.Join(s.standby.Promote(ctx), s.primary.Close()); err != nil {
		return err
	}
	s.primary, s.standby = s.standby, nil
	s.toPostgres(net.JoinHostPort("127.0.0.1", strconv.Itoa(s.primary.Port())))
	return nil
}

// toPostgres closes the connections of every link that leads to Postgres, and changes the
// targets of these links. Without targets, the links immediately close each new connection.
func (s *stack) toPostgres(targets ...string) {
	for name, l := range s.links {
		if strings.HasSuffix(name, ">postgres") {
			l.retarget(targets...)
		}
	}
}

// blockGuard makes writes of the fork guard fail, as on a full disk or after a failover of its database. If
// `blocked` is false, the writes work again.
func (s *stack) blockGuard(ctx context.Context, blocked bool) error {
	conn, err := pgx.Connect(ctx, s.guard.URL("template1"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "ALTER DATABASE postgres SET default_transaction_read_only = "+strconv.FormatBool(blocked))
	if err == nil { // the setting is for new connections
		_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'")
	}
	return err
}

// run starts the process if it has ended. It retries a failed start until ctx ends, because the
// servers that the process needs may be down too.
func (s *stack) run(ctx context.Context, name string) {
	s.starting[name].Lock()
	defer s.starting[name].Unlock()
	for ctx.Err() == nil {
		select {
		case <-s.Ended(name):
		default:
			return
		}
		if err := s.Start(ctx, name, s.env[name]...); err == nil {
			return
		}
		e2e.Pause(ctx, 200*time.Millisecond)
	}
}

func (s *stack) supervise(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-s.Failed():
			s.onFailure(f)
			go s.run(ctx, f.Name)
		}
	}
}

func (s *stack) close() error {
	var err error
	if s.Stack != nil {
		err = s.Stack.Close()
	}
	for _, p := range []*localservers.Postgres{s.standby, s.primary, s.guard} {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	for _, l := range s.links {
		l.close()
	}
	if s.relay != nil {
		s.relay.close()
	}
	if s.kms != nil {
		s.kms.Close()
	}
	return err
}
