package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var clientCounts = []int{1, 8, 64}

// rounds runs n rounds. Each round takes all measurements, so that a slow phase of the machine
// affects all values of a round, and their ratios stay comparable. The method rounds also records
// the memory of Redis and the services: at rest before the rounds, and the peak after them.
func (b *bench) rounds(n int) error {
	time.Sleep(time.Second)
	if err := b.memory("rest"); err != nil {
		return err
	}
	for i := range n {
		say("round %d of %d", i+1, n)
		if err := b.round(); err != nil {
			return err
		}
	}
	return b.memory("load")
}

func (b *bench) round() error {
	for _, clients := range []int{1, 64} {
		perSecond, ms, err := b.pgbench.inserts(b.ctx, clients, b.measureFor)
		if err != nil {
			return err
		}
		b.samples.add(fmt.Sprintf("insert.%d.per_second", clients), perSecond)
		b.samples.add(fmt.Sprintf("insert.%d.ms", clients), ms)
	}
	type step struct {
		name    string
		measure func() (*timed, error)
	}
	steps := []step{{floorName, func() (*timed, error) { return b.playFloor(64, b.measureFor) }}}
	for _, clients := range clientCounts {
		steps = append(steps, step{"deals." + strconv.Itoa(clients), func() (*timed, error) { return b.playDeals(clients, b.measureFor) }})
	}
	steps = append(steps,
		step{"log.head", func() (*timed, error) { return b.appendEntries(false, b.measureFor) }},
		step{"log.proof", func() (*timed, error) { return b.appendEntries(true, b.measureFor) }})
	for _, kind := range readKinds {
		steps = append(steps, step{"read." + kind, func() (*timed, error) { return b.read(kind, b.measureFor) }})
	}
	for _, s := range steps {
		t, err := s.measure()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.samples.addLoad(s.name, t)
	}
	if err := b.verifyHeads(); err != nil {
		return err
	}
	pairs, err := pairsOfVerifications(time.Second)
	b.samples.add("p256_pairs.per_second", pairs)
	return err
}

func (b *bench) provenance(o options) (p provenance, err error) {
	p = provenance{Time: time.Now().UTC().Format(time.DateTime), Rounds: o.rounds, Seconds: o.seconds, Finished: o.finished}
	if p.Commit, err = commit(b.ctx); err != nil {
		return p, err
	}
	if o.binaries != "" {
		p.Commit += ", binaries from " + o.binaries
	}
	p.Machine, err = machine()
	if err != nil {
		return p, err
	}
	conn, err := pgx.Connect(b.ctx, b.stack.DatabaseURL())
	if err != nil {
		return p, err
	}
	defer conn.Close(b.ctx)
	err = conn.QueryRow(b.ctx, `SELECT 'Postgres ' || current_setting('server_version') || ', jit ' || current_setting('jit') ||
			', fsync ' || current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit') ||
			', shared_buffers ' || current_setting('shared_buffers') || '; set on the command line: ' ||
			(SELECT string_agg(name, ', ' ORDER BY name) FROM pg_settings WHERE source = 'command line')`).Scan(&p.Postgres)
	return p, err
}

// commit returns the short hash of HEAD. It adds " with changes" if a tracked file differs from
// HEAD. It ignores report.json, report.md and report.svg, which the benchmark writes.
func commit(ctx context.Context) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	hash, err := git("rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)hack/bench/report.json", ":(top,exclude)hack/bench/report.md", ":(top,exclude)hack/bench/report.svg")
	if changed != "" {
		hash += " with changes"
	}
	return hash, err
}

func machine() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	cores, model := 0, "unknown"
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			cores, model = cores+1, strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%d cores, %s", cores, model), nil
}
