package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/signing"
)

// lifetime is how long a row is live after it was last written.
const lifetime = 15 * time.Second

// leaveBound is what a stop waits for the database.
const leaveBound = time.Second

// times are how long and how often, all in proportion to the lifetime of a row.
type times struct {
	lifetime time.Duration
	lease    time.Duration // to sign, from when the write of the row began
	beat     time.Duration // from one write to the next
	try      time.Duration // that one write may take
	retry    time.Duration // until the next write while there is no lease
	remind   time.Duration // between two log lines of one disagreement
	looks    int           // in a row at which nobody disagrees, before one that was kept out writes: two beats
}

func timesFor(lifetime time.Duration) times {
	return times{lifetime, lifetime * 4 / 5, lifetime * 4 / 15, lifetime / 3, lifetime / 30, 4 * lifetime, 16}
}

// Signer signs digests: internal/signing has the real one.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

// unavailable is a signing.ErrUnavailable in words of its own: the key's
// provider is not to blame.
type unavailable struct{ error }

func (u unavailable) Unwrap() error        { return u.error }
func (u unavailable) Is(target error) bool { return target == signing.ErrUnavailable }

// Gate is a process's place among the replicas, and its signer. It is safe for
// concurrent use.
type Gate struct {
	me     member
	keys   *signing.KeySet
	signer Signer
	table  table
	times  times
	logger *slog.Logger

	closed context.Context // ends at Close
	end    context.CancelFunc
	loop   sync.WaitGroup
	passed chan struct{} // closed when the gate was passed for the first time

	mu      sync.Mutex
	began   time.Time     // when the write of the row that gives the lease began; zero: no lease
	refused error         // what the table last answered, nil where the row was written
	foreign bool          // refused, and one that runs signs with a key that is not accepted here
	silent  error         // why the last write had no answer, nil where it had
	changed chan struct{} // closed, and made anew, after each write
}

// Open announces a process of the kind (its binary), which signs with the
// signer, whose key MUST be the current one of the keys. It fails where the
// database cannot be reached before ctx ends or has no schema replica. Whether
// the others agree is not known yet when it returns: see Passed.
func Open(ctx context.Context, databaseURL, kind string, signer Signer, keys *signing.KeySet, logger *slog.Logger) (*Gate, error) {
	return open(ctx, databaseURL, kind, signer, keys, logger, timesFor(lifetime))
}

func open(ctx context.Context, databaseURL, kind string, signer Signer, keys *signing.KeySet, logger *slog.Logger, t times) (*Gate, error) {
	config, err := database.Config(databaseURL)
	if err != nil {
		return nil, err
	}
	// A connection of its own: a lease does not wait behind the work of the process.
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	g := &Gate{
		me:     member{name: newName(), kind: kind, signsWith: keys.Current(), accepts: keys.Accepted()},
		keys:   keys,
		signer: signer,
		table:  table{pool, t.lifetime},
		times:  t,
		logger: logger,
		passed: make(chan struct{}), changed: make(chan struct{}),
	}
	if err = schema.Current(ctx, pool); err == nil {
		err = g.table.forget(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	g.closed, g.end = context.WithCancel(context.Background())
	g.loop.Go(g.run)
	return g, nil
}

// newName is the host's, which is the pod's, and a word that no other run has.
func newName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return host + "/" + strings.ToLower(rand.Text()[:8])
}

// Passed waits until this process has passed the gate for the first time, for as
// long as another that disagrees runs. It is false where ctx ended before.
func (g *Gate) Passed(ctx context.Context) bool {
	select {
	case <-g.passed:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ready fails while this process has not passed the gate. One that has passed
// and is refused since signs nothing, and goes on to answer, as a deal's deadlines
// pass for whoever cannot act: unless one that runs signs with a key that is not
// accepted here, for then what this process says of certificates may be wrong. A
// database that does not answer is no refusal.
func (g *Gate) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.passed:
		if g.foreign {
			return g.refused
		}
		return nil
	default:
	}
	switch {
	case g.refused != nil:
		return g.refused
	case g.silent != nil:
		return fmt.Errorf("not announced to the other replicas yet: %w", g.silent)
	}
	return errors.New("not announced to the other replicas yet")
}

// Sign signs under a lease; it waits for one for as long as ctx lets it. An
// error is the signer's own, or signing.ErrUnavailable where a process that runs
// disagrees or the lease could not be had in time.
func (g *Gate) Sign(ctx context.Context, digest [32]byte) (string, error) {
	if err := g.hold(ctx); err != nil {
		return "", err
	}
	signature, err := g.signer.Sign(ctx, digest)
	if err != nil {
		return "", err
	}
	// The process may have been paused since: nothing leaves without a lease.
	if err := g.hold(ctx); err != nil {
		return "", err
	}
	return signature, nil
}

// Close takes the process out: nothing is signed from here on, and its row is
// deleted, within a second, where the database answers.
func (g *Gate) Close() {
	g.end()
	g.loop.Wait()
	lease.Set(0)
	ctx, cancel := context.WithTimeout(context.Background(), leaveBound)
	defer cancel()
	if err := g.table.leave(ctx, g.me); err != nil {
		g.logger.Warn("this process could not be taken off the list of replicas; it counts as running for a while", "for", g.times.lifetime.String(), "error", err.Error())
	}
	database.Close(g.table.pool)
}

func (g *Gate) hold(ctx context.Context) error {
	for {
		g.mu.Lock()
		held, refused, silent, changed := g.holds(), g.refused, g.silent, g.changed
		g.mu.Unlock()
		switch {
		case g.closed.Err() != nil:
			return unavailable{errors.New("this process is stopping")}
		case held:
			return nil
		case refused != nil:
			return unavailable{refused}
		}
		select {
		case <-changed:
		case <-g.closed.Done():
		case <-ctx.Done():
			if silent == nil {
				silent = errors.New("its next beat is due")
			}
			return unavailable{fmt.Errorf("this process has no lease to sign, as it could not announce itself to the other replicas (%w): %w", silent, ctx.Err())}
		}
	}
}

// holds tells whether there is a lease. The caller has mu.
func (g *Gate) holds() bool { return !g.began.IsZero() && elapsed(g.began) < g.times.lease }

// elapsed is the longer of what the monotonic clock says, which may stand while
// a virtual machine is paused, and the wall clock, which may be set.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// run writes the row again and again, until Close.
func (g *Gate) run() {
	var told report
	owed := 0
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(g.closed, g.times.try)
		against, err := g.table.announce(ctx, g.me, owed == 0)
		cancel()
		if g.closed.Err() != nil {
			return
		}
		pause := g.times.retry
		if g.note(began, owed == 0, against, err) {
			pause = g.times.beat
		}
		if owed == 0 || err != nil || len(against) > 0 {
			told.tell(g, len(against), err)
		}
		owed = owes(owed, g.times.looks, g.keptOut(), len(against), err)
		select {
		case <-g.closed.Done():
			return
		case <-time.After(pause):
		}
	}
}

// note takes in what a write, or only a look, was answered and tells whether
// there is a lease.
func (g *Gate) note(began time.Time, wrote bool, against []opponent, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.changed)
	g.changed = make(chan struct{})
	g.silent = err
	defer func() { lease.Set(map[bool]float64{true: 1}[g.holds()]) }()
	switch {
	case err != nil: // what the row was worth, it still is
		return false
	case len(against) > 0:
		g.began, g.refused = time.Time{}, g.refusal(against)
		g.foreign = slices.ContainsFunc(against, func(other opponent) bool { return !slices.Contains(g.me.accepts, other.SignsWith) })
	case !wrote:
		g.refused, g.foreign = errors.New("no process that runs disagrees with this one any more; it lets those that disagreed go first, should they come back within seconds"), false
	default:
		g.began, g.refused, g.foreign = began, nil, false
		if g.holds() {
			select {
			case <-g.passed:
			default:
				close(g.passed)
			}
		}
	}
	disagreements.Set(float64(len(against)))
	return g.holds()
}
