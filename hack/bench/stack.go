package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// bench is one stack under test: one process of each service, Redis, and Postgres. Postgres
// runs with fsync, and no setting makes it faster than its defaults.
type bench struct {
	ctx        context.Context
	measureFor time.Duration // duration of one measurement
	samples    samples

	dir     string
	stack   *localstack.Stack
	pgbench *pgbench
	key     keys.Key
	heads   *heads
	workers []*worker
	ended   []endedDeal
	floor   *floor
}

// services are the processes that use the product's database, in the order of their start.
var services = []string{localstack.LogServer, localstack.DealAPI, localstack.DeadlineWorker}

func start(ctx context.Context, bin string, seconds time.Duration, s samples) (*bench, error) {
	dir, err := os.MkdirTemp("", "fairpact-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, measureFor: seconds, samples: s, dir: dir, heads: newHeads()}
	if err := b.start(bin); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) start(bin string) (err error) {
	if err := os.Chmod(b.dir, 0o711); err != nil { // if this process is root, Postgres runs as another user, who must be able to enter the directory
		return err
	}
	b.stack, err = localstack.Start(b.ctx, localstack.Options{
		Bin: bin, PostgresDir: filepath.Join(b.dir, "postgres"), // Postgres flushes to disk only if PostgresDir is set
	})
	if err != nil {
		return err
	}
	if b.pgbench, err = newPgbench(b.ctx, b.stack.Postgres(), b.dir); err != nil {
		return err
	}
	var status struct {
		Pubkey string `json:"pubkey"`
	}
	c := newClient(b.stack.BaseURL())
	defer c.close()
	if _, err := c.call(200, "GET", "/v1/status", "", nil, &status); err != nil {
		return err
	}
	b.key, err = keys.New(status.Pubkey)
	return err
}

func (b *bench) close() error {
	var errs []error
	for _, w := range b.workers {
		w.client.close()
	}
	if b.floor != nil {
		b.floor.close()
	}
	if b.stack != nil {
		errs = append(errs, b.stack.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

func (b *bench) pids() map[string]int {
	pids := map[string]int{
		postgres: b.stack.Postgres().PID(), redis: b.stack.Redis().PID(), generator: os.Getpid(),
	}
	for _, name := range services {
		pids[name] = b.stack.PID(name)
	}
	if b.floor != nil {
		for name, process := range b.floor.processes {
			pids[name] = process.PID()
		}
	}
	return pids
}

func (b *bench) restartServices(whileStopped func() error, env func(service string) []string) error {
	for i := range services {
		if err := b.stack.Stop(services[len(services)-1-i]); err != nil {
			return err
		}
	}
	if err := whileStopped(); err != nil {
		return err
	}
	for _, w := range b.workers {
		w.client.close()
	}
	for _, name := range services {
		if err := b.stack.Start(b.ctx, name, env(name)...); err != nil {
			return err
		}
	}
	return nil
}

func noEnv(string) []string { return nil }

// exec runs statements on the product's database as a superuser, without the
// session settings of the services.
func (b *bench) exec(statements ...string) error {
	conn, err := pgx.Connect(b.ctx, b.stack.DatabaseURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(b.ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(b.ctx, statement); err != nil {
			return fmt.Errorf("%.60s: %w", statement, err)
		}
	}
	return nil
}

// memory adds a sample of the current resident memory if when is "rest", and of the peak otherwise.
func (b *bench) memory(when string) error {
	for _, name := range append([]string{redis}, services...) {
		now, peak, err := memoryMiB(b.pids()[name])
		if err != nil {
			return err
		}
		if when == "rest" {
			b.samples.add("memory.rest."+name, now)
		} else {
			b.samples.add("memory."+when+"."+name, peak)
		}
	}
	return nil
}
