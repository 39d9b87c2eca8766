package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

type statement struct {
	Service string  `json:"service"`
	Query   string  `json:"query"`
	Calls   float64 `json:"calls"`   // per deal
	ExecUS  float64 `json:"exec_us"` // microseconds per deal
}

type counts struct {
	statements map[string]float64 // executions by service, without BEGIN, COMMIT and other transaction control
	execMS     float64
	roundTrips map[string]float64 // by service
}

// counting is a stack on which statements and round trips are counted. Postgres loads
// pg_stat_statements. Each service has a separate Postgres role and connects through
// a separate roundTripCounter. Counting slows the services down, so the benchmark
// measures no rates and no latencies after startCounting.
type counting struct {
	*bench
	proxies map[string]*roundTripCounter
}

// startCounting stops the services and restarts Postgres with pg_stat_statements. It then
// starts each service with a separate Postgres role and a separate roundTripCounter. Nothing
// undoes these changes, so counting is the last measurement on a stack.
func (b *bench) startCounting() (*counting, error) {
	c := &counting{b, map[string]*roundTripCounter{}}
	server, err := url.Parse(b.stack.DatabaseURL())
	if err != nil {
		return nil, err
	}
	for _, service := range services {
		if c.proxies[service], err = newRoundTripCounter(server.Host); err != nil {
			return nil, err
		}
	}
	password := randomHex(16)
	prepare := func() error {
		if err := b.exec("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'"); err != nil {
			return err
		}
		if err := b.stack.Postgres().Restart(b.ctx); err != nil {
			return err
		}
		statements := []string{"CREATE EXTENSION pg_stat_statements"}
		for _, service := range services {
			statements = append(statements, fmt.Sprintf("CREATE ROLE %s SUPERUSER LOGIN PASSWORD '%s'", role(service), password))
		}
		return b.exec(statements...)
	}
	return c, b.restartServices(prepare, func(service string) []string {
		own := *server
		own.Host, own.User = c.proxies[service].address(), url.UserPassword(role(service), password)
		return []string{"DATABASE_URL=" + own.String()}
	})
}

func (c *counting) close() {
	for _, proxy := range c.proxies {
		proxy.close()
	}
}

func role(service string) string { return "bench_" + strings.ReplaceAll(service, "-", "_") }

// countDeals plays deals and adds to the samples how many statements, how many round trips and
// how much execution time a deal needs. It returns the costliest statements. Before these
// deals, it counts the work of the idle services for the duration `idle`.
// countDeals subtracts the idle work from the samples, but not from the returned statements.
func (c *counting) countDeals(clients int, idle time.Duration) ([]statement, error) {
	// These deals make the services open connections and prepare statements before the
	// counting begins.
	if _, err := c.playDeals(clients, time.Second); err != nil {
		return nil, err
	}
	if err := c.reset(); err != nil {
		return nil, err
	}
	time.Sleep(idle)
	quiet, err := c.counts()
	if err != nil {
		return nil, err
	}
	if err := c.reset(); err != nil {
		return nil, err
	}
	t, err := c.playDeals(clients, c.measureFor)
	if err != nil {
		return nil, err
	}
	busy, err := c.counts()
	if err != nil {
		return nil, err
	}
	top, err := c.top(float64(t.n))
	if err != nil {
		return nil, err
	}
	if err := c.verifyHeads(); err != nil {
		return nil, err
	}
	share := t.elapsed.Seconds() / idle.Seconds()
	deals := float64(t.n)
	a := func(busy, quiet float64) float64 { return max(0, busy-quiet*share) / deals }
	name := "count." + strconv.Itoa(clients)
	var statements, roundTrips float64
	for _, service := range services {
		own := a(busy.statements[service], quiet.statements[service])
		trips := a(busy.roundTrips[service], quiet.roundTrips[service])
		c.samples.add(name+".statements."+service, own)
		c.samples.add(name+".round_trips."+service, trips)
		statements, roundTrips = statements+own, roundTrips+trips
	}
	c.samples.add(name+".statements", statements)
	c.samples.add(name+".round_trips", roundTrips)
	c.samples.add(name+".exec_us", 1000*a(busy.execMS, quiet.execMS))
	return top, nil
}

func (c *counting) reset() error {
	for _, proxy := range c.proxies {
		proxy.count.Store(0)
	}
	return c.exec("SELECT pg_stat_statements_reset()")
}

const isTransactionControl = `query ~* '^\s*(begin|commit|rollback|start transaction|savepoint|release)'`

func (c *counting) counts() (*counts, error) {
	n := &counts{statements: map[string]float64{}, roundTrips: map[string]float64{}}
	for service, proxy := range c.proxies {
		n.roundTrips[service] = float64(proxy.count.Load())
	}
	conn, err := pgx.Connect(c.ctx, c.stack.DatabaseURL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(c.ctx))
	for _, service := range services {
		var calls, execMS float64
		err := conn.QueryRow(c.ctx, `SELECT
				coalesce(sum(calls) FILTER (WHERE NOT `+isTransactionControl+`), 0)::float8, coalesce(sum(total_exec_time), 0)
			FROM pg_stat_statements WHERE userid = $1::text::regrole`, role(service)).Scan(&calls, &execMS)
		if err != nil {
			return nil, err
		}
		n.statements[service] = calls
		n.execMS += execMS
	}
	return n, nil
}

// top returns the costliest statements since the last reset, with calls and time per deal.
func (c *counting) top(deals float64) ([]statement, error) {
	conn, err := pgx.Connect(c.ctx, c.stack.DatabaseURL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(c.ctx))
	var list []statement
	for _, service := range services {
		rows, err := conn.Query(c.ctx, `SELECT $2::text, query, calls / $3::float8, 1000 * total_exec_time / $3
			FROM pg_stat_statements WHERE userid = $1::text::regrole`, role(service), service, deals)
		if err != nil {
			return nil, err
		}
		own, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
		if err != nil {
			return nil, err
		}
		list = append(list, own...)
	}
	return costliest(list), nil
}

const maxStatements = 20

func costliest(list []statement) []statement {
	slices.SortFunc(list, func(a, b statement) int {
		return cmp.Compare(b.ExecUS, a.ExecUS)
	})
	list = list[:min(len(list), maxStatements)]
	for i := range list {
		list[i].Query = oneLine(list[i].Query)
	}
	return list
}

func oneLine(query string) string {
	var words []string
	for line := range strings.Lines(query) {
		code, _, _ := strings.Cut(line, "--")
		words = append(words, strings.Fields(code)...)
	}
	return strings.Join(words, " ")
}
