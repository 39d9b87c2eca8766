package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxGroup     = 512 // inserts of one transaction
	groupsAtOnce = 2   // one is on its way to the disk while the next one fills
	groupTimeout = 20 * time.Second
)

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/store")

// grouped coalesces inserts that wait at the same moment, of any deals, into one
// transaction: the round trips, wakeups and flushes of one serve all. Nothing
// waits for a timer, so a lone insert goes at once.
type grouped struct {
	store     *Store
	statement string
	queue     chan *insert
	stop      context.CancelFunc
	loops     sync.WaitGroup
}

// insert is one row that a caller waits for; done takes one answer and never
// blocks.
type insert struct {
	span   trace.Span // the caller's wait
	at     place
	value  []byte
	replay *Replay
	done   chan inserted
}

type place struct {
	deal  string
	party int
}

type inserted struct {
	ok  bool
	err error
}

func (s *Store) newGrouped(statement string) *grouped {
	ctx, stop := context.WithCancel(context.Background())
	g := &grouped{store: s, statement: statement, queue: make(chan *insert, 4*maxGroup), stop: stop}
	for range groupsAtOnce {
		g.loops.Go(func() { g.run(ctx) })
	}
	return g
}

// close breaks off the groups under way. Nobody may wait for one any more.
func (g *grouped) close() {
	g.stop()
	g.loops.Wait()
}

func (g *grouped) insert(ctx context.Context, deal string, party int, value []byte, r *Replay) (bool, error) {
	_, span := tracer.Start(ctx, "grouped insert")
	defer span.End()
	row := &insert{span, place{deal, party}, value, r, make(chan inserted, 1)}
	select {
	case g.queue <- row:
	case <-ctx.Done():
		return false, outage(ctx.Err())
	}
	select {
	case got := <-row.done:
		return got.ok, outage(got.err)
	case <-ctx.Done():
		return false, outage(ctx.Err()) // it may be inserted all the same
	}
}

func (g *grouped) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-g.queue:
			group := g.drain(first)
			if err := g.write(ctx, group); err != nil {
				g.mend(ctx, group, err)
			}
		}
	}
}

// drain takes what waits now.
func (g *grouped) drain(first *insert) []*insert {
	group := []*insert{first}
	for len(group) < maxGroup {
		select {
		case next := <-g.queue:
			group = append(group, next)
		default:
			return group
		}
	}
	return group
}

// mend answers a group that failed. Where one row spoiled it for the others (a
// replayed Idempotency-Key, a deadlock) nothing of it was done and each is tried
// alone. Where a lock or the time ran out the rest would wait as long again, and
// where the connection broke the outcome is unknown: a second try could call a
// caller's own insert a stranger's.
func (g *grouped) mend(ctx context.Context, group []*insert, err error) {
	pg, refused := errors.AsType[*pgconn.PgError](err)
	refused = refused && (pg.Code == "23505" || strings.HasPrefix(pg.Code, "40"))
	for _, row := range group {
		alone := err
		if refused && len(group) > 1 {
			alone = g.write(ctx, []*insert{row})
		}
		if alone != nil {
			row.done <- inserted{err: replayed(alone)}
		}
	}
}

// write inserts a group in one transaction and one round trip, and answers it
// where that succeeds. Of two rows for one place the first is tried and the
// other finds it taken.
func (g *grouped) write(ctx context.Context, group []*insert) error {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	ctx = trace.ContextWithSpan(ctx, group[0].span) // one trace shows the statements
	var c columns
	for _, row := range group {
		c.add(row)
	}
	batch := &pgx.Batch{}
	batch.Queue(lockShareSQL, c.deals)
	written := make(map[place]bool, len(group))
	batch.Queue(g.statement, c.deals, c.parties, c.values, c.scopes, c.bodies, c.lifetimes).Query(func(rows pgx.Rows) error {
		var at place
		_, err := pgx.ForEachRow(rows, []any{&at.deal, &at.party}, func() error {
			written[at] = true
			return nil
		})
		return err
	})
	if err := g.store.pool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	for _, row := range group {
		row.done <- inserted{ok: written[row.at]}
		delete(written, row.at)
	}
	return nil
}

// columns are the arguments of a group's statement.
type columns struct {
	taken                  map[place]bool
	deals                  []string
	parties                []int
	values, scopes, bodies [][]byte
	lifetimes              []int64
}

func (c *columns) add(row *insert) {
	if c.taken[row.at] {
		return
	}
	if c.taken == nil {
		c.taken = make(map[place]bool)
	}
	c.taken[row.at] = true
	scope, body, _, lifetime := row.replay.columns()
	c.deals, c.parties, c.values = append(c.deals, row.at.deal), append(c.parties, row.at.party), append(c.values, row.value)
	c.scopes, c.bodies, c.lifetimes = append(c.scopes, scope), append(c.bodies, body), append(c.lifetimes, lifetime)
}
