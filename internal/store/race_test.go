package store_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

const rounds = 40

// atOnce runs n calls at the same moment, in turn on one of two replicas.
func (f *fixture) atOnce(n int, do func(i int, s *store.Store)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		s := []*store.Store{f.Store, f.replica}[i%2]
		group.Go(func() {
			<-start
			do(i, s)
		})
	}
	close(start)
	group.Wait()
}

// race runs two calls at the same moment on two replicas.
func (f *fixture) race(t *testing.T, first, second func(*store.Store) (bool, error)) (one, other bool) {
	t.Helper()
	done := make([]bool, 2)
	f.atOnce(2, func(i int, s *store.Store) {
		var err error
		if done[i], err = []func(*store.Store) (bool, error){first, second}[i](s); err != nil {
			t.Error(err)
		}
	})
	return done[0], done[1]
}

func isDone(a store.Acted, err error) (bool, error) { return a.Done, err }

// Of any number of concurrent last ones all are stored. One transaction advances
// the deal, and all that are told that nobody is missing belong to it.
func TestConcurrentLastOnesAdvanceTheDealOnce(t *testing.T) {
	f := newFixture(t)
	for _, n := range []int{2, 3, 8} {
		for range rounds / 2 {
			d := f.create(t, func(d *store.Declaration) { parties(n)(d); random(d) })
			for _, step := range []struct {
				table string
				do    func(*store.Store, context.Context, store.Act) (store.Acted, error)
			}{{"commitments", (*store.Store).Commit}, {"reveals", (*store.Store).Reveal}} {
				told := make([]bool, n)
				f.atOnce(n, func(party int, s *store.Store) {
					got, err := step.do(s, t.Context(), act(d, party))
					if err != nil || !got.Done {
						t.Errorf("party %d: %+v, %v", party, got, err)
					}
					told[party] = got.All
				})
				if !slices.Contains(told, true) {
					t.Fatalf("%s: nobody is told that nobody is missing", step.table)
				}
				for party, all := range told {
					together := f.count(t, "SELECT count(*) FROM deals d JOIN "+step.table+" a USING (deal_id) WHERE deal_id = $1 AND party = $2 AND a.xmin = d.xmin", d.DealID, party) == 1
					if all != together {
						t.Fatalf("%s: party %d is told that nobody is missing: %v, was stored by the transaction that advanced the deal: %v", step.table, party, all, together)
					}
				}
			}
		}
	}
}

// An acknowledged commit or reveal is never named a flaker: the end of a deal
// waits for what was let in before it, and what comes later is refused.
func TestAnAcknowledgedActIsNeverAFlaker(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	const n = 6
	ends := map[bool]int{}
	for round := range 3 * rounds {
		d := f.create(t, parties(n))
		insert := func(s *store.Store, p int) (store.Acted, error) { return s.Commit(ctx, act(d, p)) }
		if round%2 == 1 {
			everyone := make([]store.Act, n)
			for p := range everyone {
				everyone[p] = act(d, p)
			}
			_, errs := f.CommitTogether(everyone...)
			checkAll(t, errs)
			insert = func(s *store.Store, p int) (store.Acted, error) { return s.Reveal(ctx, act(d, p)) }
		}
		var acknowledged [n]bool
		var ended atomic.Bool
		f.atOnce(n+2, func(i int, s *store.Store) {
			if i < n-1 { // the last party never acts
				got, err := insert(s, i)
				if acknowledged[i] = got.Done; err != nil {
					t.Error(err)
				}
			}
			for i >= n && !ended.Load() { // the deadline has passed for one that sees it pass
				e, err := ending(ctx, s, d, deal.Void)
				if err != nil {
					t.Error(err)
					return
				}
				if e.From == deal.Void {
					return // the other one has ended it
				}
				done, err := s.End(ctx, e)
				if err != nil {
					t.Error(err)
					return
				}
				if done && ended.Swap(true) {
					t.Error("the deal ended twice")
				}
			}
		})
		now := f.snapshot(t, d, store.Everyone(len(d.Labels)))
		if now.Phase != deal.Void || now.CertID == nil || f.count(t, "SELECT count(*) FROM certificates WHERE deal_id = $1", d.DealID) != 1 {
			t.Fatalf("round %d: %+v", round, now)
		}
		acks := 0
		for p, ok := range acknowledged {
			part := now.Parts[p]
			if acted := round%2 == 0 && part.Commitment != nil || round%2 == 1 && part.Revealed; ok == slices.Contains(now.VoidFlakers, p) || ok != acted {
				t.Fatalf("round %d: party %d was acknowledged: %v, is stored: %v, flakers are %v", round, p, ok, acted, now.VoidFlakers)
			}
			if ok {
				acks++
			}
		}
		ends[acks == n-1]++
	}
	t.Logf("rounds that ended after all inserts: %d, before some: %d", ends[true], ends[false])
}

func TestOneOfTwoTakesPlace(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	type step = func(*store.Store) (bool, error)
	end := func(e *store.Ending) step { return func(s *store.Store) (bool, error) { return s.End(ctx, e) } }
	reject := func(e *store.Ending, a store.Act) step {
		return func(s *store.Store) (bool, error) { return s.Reject(ctx, e, a) }
	}
	commit := func(a store.Act) step { return func(s *store.Store) (bool, error) { return isDone(s.Commit(ctx, a)) } }
	for what, steps := range map[string]func(d *store.Declaration) (step, step){
		"the same commit": func(d *store.Declaration) (step, step) { return commit(act(d, 0)), commit(act(d, 0)) },
		"two ends": func(d *store.Declaration) (step, step) {
			return end(f.ending(t, d, deal.Void)), end(f.ending(t, d, deal.Void))
		},
		"two ends after the last reveal": func(d *store.Declaration) (step, step) {
			f.commit(t, d, 0, 1)
			f.reveal(t, d, 0, 1)
			return end(f.ending(t, d, deal.Computed)), end(f.ending(t, d, deal.Expired))
		},
		"two rejections": func(d *store.Declaration) (step, step) {
			f.commit(t, d, 0, 1)
			return reject(f.ending(t, d, deal.Void), act(d, 0)), reject(f.ending(t, d, deal.Void), act(d, 1))
		},
		"a cancel and a counterparty's commit": func(d *store.Declaration) (step, step) {
			return func(s *store.Store) (bool, error) { return s.Cancel(ctx, d.DealID, nil) }, commit(act(d, 1))
		},
	} {
		t.Run(what, func(t *testing.T) {
			for range rounds / 2 {
				d := f.create(t, nil)
				first, second := steps(d)
				if one, other := f.race(t, first, second); one == other {
					t.Fatalf("%v and %v, want one of them", one, other)
				}
				if now := f.stands(t, d); (now.CertID != nil) != (now.Phase == deal.Void || now.Phase == deal.Computed) {
					t.Fatalf("the deal stands as %+v", now)
				}
			}
		})
	}
}

// behind holds a deal's row, starts do, waits until the database reports that it
// waits for a lock, lets the holder act, and returns what do returns.
func (f *fixture) behind(t *testing.T, dealID string, do func() (bool, error), holder func(pgx.Tx)) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx := f.hold(t, f.sql, dealID)
	var done bool
	var failed error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		done, failed = do()
	}()
	f.awaitWaiting(t, 1)
	holder(tx)
	check(t, tx.Commit(ctx))
	<-finished
	check(t, failed)
	return done
}

// hold locks deals' rows until the transaction ends.
func (f *fixture) hold(t *testing.T, conn *pgx.Conn, dealIDs ...string) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM deals WHERE deal_id = ANY($1) FOR UPDATE", dealIDs)
	check(t, err)
	return tx
}

// awaitWaiting waits until n sessions wait for a lock.
func (f *fixture) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := f.connect(t) // a transaction sees only the sessions that were there when it first looked
	for waiting := 0; waiting < n; {
		check(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
	}
}

// READ COMMITTED checks again only the row that it waited for: what else a
// decision depends on must be read in the statement after the lock.
func TestDecidesAfterTheLock(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	const committed, revealed = "INSERT INTO commitments VALUES ($1, 1, sha256(''), 1)", "INSERT INTO reveals VALUES ($1, 1, 'x', 1)"
	for what, row := range map[string]struct {
		holder string
		commit []int
		call   func(d *store.Declaration) func() (bool, error)
	}{
		"a commit sees that the deal ended": {"UPDATE deals SET phase = 'VOID' WHERE deal_id = $1", nil, func(d *store.Declaration) func() (bool, error) {
			return func() (bool, error) { return isDone(f.Commit(ctx, act(d, 0))) }
		}},
		"a reveal sees that the deal ended": {"UPDATE deals SET phase = 'VOID' WHERE deal_id = $1", []int{0, 1}, func(d *store.Declaration) func() (bool, error) {
			return func() (bool, error) { return isDone(f.Reveal(ctx, act(d, 0))) }
		}},
		"an end sees the commit": {committed, nil, func(d *store.Declaration) func() (bool, error) {
			e := f.ending(t, d, deal.Void)
			return func() (bool, error) { return f.End(ctx, e) }
		}},
		"an end sees the reveal": {revealed, []int{0, 1}, func(d *store.Declaration) func() (bool, error) {
			e := f.ending(t, d, deal.Void)
			return func() (bool, error) { return f.End(ctx, e) }
		}},
		"a cancel sees the commit": {committed, nil, func(d *store.Declaration) func() (bool, error) {
			return func() (bool, error) { return f.Cancel(ctx, d.DealID, nil) }
		}},
		"a rejection sees the reveal": {revealed, []int{0, 1}, func(d *store.Declaration) func() (bool, error) {
			e := f.ending(t, d, deal.Void)
			return func() (bool, error) { return f.Reject(ctx, e, act(d, 0)) }
		}},
	} {
		t.Run(what, func(t *testing.T) {
			d := f.create(t, nil)
			f.commit(t, d, row.commit...)
			if f.behind(t, d.DealID, row.call(d), func(tx pgx.Tx) {
				_, err := tx.Exec(ctx, row.holder, d.DealID)
				check(t, err)
			}) {
				t.Error("it took place all the same")
			}
		})
	}
	t.Run("the last commit sees the one before", func(t *testing.T) {
		d := f.create(t, nil)
		if !f.behind(t, d.DealID, func() (bool, error) { a, err := f.Commit(ctx, act(d, 0)); return a.Done && a.All, err }, func(tx pgx.Tx) {
			_, err := tx.Exec(ctx, committed, d.DealID)
			check(t, err)
		}) || f.stands(t, d).Phase != deal.Revealing {
			t.Error("both have committed and the deal was not advanced")
		}
	})
}

// The clock is read after the lock is held: a call that waits past the deadline
// is late.
func TestTheClockIsReadAfterTheLock(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, nil)
	f.exec(t, "UPDATE deals SET commit_deadline = ceil(extract(epoch FROM clock_timestamp())) + 1 WHERE deal_id = $1", d.DealID)
	if f.behind(t, d.DealID, func() (bool, error) { return isDone(f.Commit(t.Context(), act(d, 0))) }, func(tx pgx.Tx) {
		const reached = "SELECT extract(epoch FROM clock_timestamp()) >= commit_deadline FROM deals WHERE deal_id = $1"
		for late := false; !late; {
			check(t, tx.QueryRow(t.Context(), reached, d.DealID).Scan(&late))
		}
	}) {
		t.Error("a commit that got its lock after the deadline is stored")
	}
}
