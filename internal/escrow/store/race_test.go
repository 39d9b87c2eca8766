package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func isDone(a store.ActResult, err error) (bool, error) { return a.Done, err }

// If all parties commit (or reveal) at once, every commitment is stored, and one transaction
// advances the deal. ActResult.All is true only for the commitments that this transaction stored.
func TestConcurrentLastActsAdvanceTheDealOnce(t *testing.T) {
	f := newFixture(t)
	for _, n := range []int{2, 3, 8} {
		for range 20 {
			d := f.create(t, func(d *store.Declaration) { parties(n)(d); random(d) })
			for _, step := range []struct {
				table string
				do    func(*store.Store, context.Context, store.Act) (store.ActResult, error)
			}{{"commitments", (*store.Store).Commit}, {"reveals", (*store.Store).Reveal}} {
				told := make([]bool, n)
				var group sync.WaitGroup
				start := make(chan struct{})
				for party := range n {
					s := []*store.Store{f.Store, f.replica}[party%2]
					group.Go(func() {
						<-start
						got, err := step.do(s, t.Context(), act(d, party))
						if err != nil || !got.Done {
							t.Errorf("act of party %d: got %+v, %v; want Done", party, got, err)
						}
						told[party] = got.All
					})
				}
				close(start)
				group.Wait()
				if !slices.Contains(told, true) {
					t.Fatalf("%s: All is %v, want true for at least one party", step.table, told)
				}
				for party, all := range told {
					together := f.count(t, "SELECT count(*) FROM deals d JOIN "+step.table+" a USING (deal_id) WHERE deal_id = $1 AND party = $2 AND a.xmin = d.xmin", d.DealID, party) == 1
					if all != together {
						t.Fatalf("%s: party %d gets All %v, want %v: whether its transaction advanced the deal", step.table, party, all, together)
					}
				}
			}
		}
	}
}

// behind locks a deal's row, starts `do`, and waits until the database reports that `do`
// waits for the lock. Then it calls `holder` in the locking transaction, commits that
// transaction, and returns the result of `do`.
func (f *fixture) behind(t *testing.T, dealID string, do func() (bool, error), holder func(pgx.Tx)) bool {
	t.Helper()
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
	check(t, tx.Commit(t.Context()))
	<-finished
	check(t, failed)
	return done
}

func (f *fixture) hold(t *testing.T, conn *pgx.Conn, dealIDs ...string) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM deals WHERE deal_id = ANY($1) FOR UPDATE", dealIDs)
	check(t, err)
	return tx
}

func (f *fixture) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := f.connect(t) // not f.sql: it may be in a transaction, in which pg_stat_activity does not change
	for waiting := 0; waiting < n; {
		check(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
	}
}

// Of two concurrent changes of a deal, the second sees what the first did. Under READ
// COMMITTED, a statement that waited for a row reads only that row again. So the statement
// after the lock must read everything else.
func TestDecidesAfterTheLock(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	const (
		committed = "INSERT INTO commitments VALUES ($1, 1, sha256(''), 1)"
		revealed  = "INSERT INTO reveals VALUES ($1, 1, 'x', 1)"
		ended     = "UPDATE deals SET phase = 'VOID' WHERE deal_id = $1"
	)
	type call func(d *store.Declaration) func() (bool, error)
	commit := func(d *store.Declaration) func() (bool, error) {
		return func() (bool, error) { return isDone(f.Commit(ctx, act(d, 0))) }
	}
	reveal := func(d *store.Declaration) func() (bool, error) {
		return func() (bool, error) { return isDone(f.Reveal(ctx, act(d, 0))) }
	}
	end := func(d *store.Declaration) func() (bool, error) {
		e := f.ending(t, d, deal.Void)
		return func() (bool, error) { return f.End(ctx, e) }
	}
	cancel := func(d *store.Declaration) func() (bool, error) {
		return func() (bool, error) { return f.Cancel(ctx, d.DealID, nil) }
	}
	reject := func(d *store.Declaration) func() (bool, error) {
		e := f.ending(t, d, deal.Void)
		return func() (bool, error) { return f.Reject(ctx, e, act(d, 0)) }
	}
	for what, row := range map[string]struct {
		first           string
		commits, reveal []int
		second          call
	}{
		"a commit sees that the deal ended":                  {ended, nil, nil, commit},
		"a reveal sees that the deal ended":                  {ended, []int{0, 1}, nil, reveal},
		"an end sees that the deal ended":                    {ended, []int{0}, nil, end},
		"an end after all revealed sees that the deal ended": {ended, []int{0, 1}, []int{0, 1}, end},
		"a rejection sees that the deal ended":               {ended, []int{0, 1}, nil, reject},
		"an end sees the commit, which is then no flaker's":  {committed, nil, nil, end},
		"an end sees the reveal, which is then no flaker's":  {revealed, []int{0, 1}, nil, end},
		"a cancel sees the counterparty's commit":            {committed, nil, nil, cancel},
		"a rejection sees the reveal":                        {revealed, []int{0, 1}, nil, reject},
	} {
		t.Run(what, func(t *testing.T) {
			d := f.create(t, nil)
			f.commit(t, d, row.commits...)
			f.reveal(t, d, row.reveal...)
			if f.behind(t, d.DealID, row.second(d), func(tx pgx.Tx) {
				_, err := tx.Exec(ctx, row.first, d.DealID)
				check(t, err)
			}) {
				t.Error("the second change took place, want only the first")
			}
		})
	}
	t.Run("the last commit sees the one before", func(t *testing.T) {
		d := f.create(t, nil)
		if !f.behind(t, d.DealID, func() (bool, error) { a, err := f.Commit(ctx, act(d, 0)); return a.Done && a.All, err }, func(tx pgx.Tx) {
			_, err := tx.Exec(ctx, committed, d.DealID)
			check(t, err)
		}) || f.current(t, d).Phase != deal.Revealing {
			t.Errorf("after the commits of both parties the deal is %s, want REVEALING and All for the last commit", f.current(t, d).Phase)
		}
	})
}

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
		t.Error("a commit that got its lock after the deadline is stored, want it refused")
	}
}

// If another transaction has locked a deal's row, only calls for this deal wait. They take
// effect once the row is free.
func TestASlowDealDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	committing, revealing, overdue := f.create(t, nil), f.create(t, random), f.create(t, nil)
	f.commit(t, revealing, 0, 1)
	e := f.ending(t, overdue, deal.Void)
	tx := f.hold(t, f.connect(t), committing.DealID, revealing.DealID, overdue.DealID)
	results := make(chan error, 5)
	call := func(do func() (bool, error)) {
		go func() {
			done, err := do()
			if err == nil && !done {
				err = context.Canceled
			}
			results <- err
		}()
	}
	for p := range 2 {
		call(func() (bool, error) { return isDone(f.Commit(ctx, act(committing, p))) })
		call(func() (bool, error) { return isDone(f.Reveal(ctx, act(revealing, p))) })
	}
	call(func() (bool, error) { return f.End(ctx, e) })
	f.awaitWaiting(t, 3)
	for range 3 {
		other := f.create(t, nil)
		f.commit(t, other, 0, 1)
		f.reveal(t, other, 0, 1)
		f.end(t, other, deal.Computed)
	}
	if now := f.current(t, overdue); now.Phase != deal.Committing || len(results) != 0 {
		t.Errorf("while the rows are held %d calls are answered and the overdue deal is %s, want 0 and COMMITTING", len(results), now.Phase)
	}
	check(t, tx.Rollback(ctx))
	for range cap(results) {
		if err := <-results; err != nil {
			t.Errorf("a call on a slow deal: got error %v, want none", err)
		}
	}
	c, r, o := f.current(t, committing), f.current(t, revealing), f.current(t, overdue)
	if c.Phase != deal.Revealing || r.RevealsClosedAt == nil || o.Phase != deal.Void {
		t.Errorf("the slow deals became %+v, %+v, %+v; want REVEALING, closed reveals, VOID", c, r, o)
	}
}

// lock.sql skips a deal whose row another transaction locks. If that transaction ends before
// end.sql runs, end.sql must still report the deal as not free, so that the coalescer waits for
// the row. "Free and not ended" would mean that the deal has changed, and the caller would read
// the deal again for nothing.
func TestADealThatTheLockSkippedIsNotDecidedOn(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := f.create(t, nil)
	e := f.ending(t, d, deal.Void)
	holder := f.hold(t, f.connect(t), d.DealID)
	tx, err := f.sql.Begin(ctx)
	check(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, statement(t, "lock"), []string{d.DealID})
	check(t, err)
	check(t, holder.Rollback(ctx))
	var free, ended bool
	check(t, tx.QueryRow(ctx, statement(t, "end"), []string{d.DealID}, []string{"COMMITTING"}, []string{"VOID"}, []int{e.Commits}, []int{e.Reveals}, []*int64{nil}, []*int64{nil},
		[][]byte{nil}, []string{"{0,1}"}, []*string{e.CertID}, [][]byte{e.Payload}, [][]byte{e.MAC}, []int64{e.At}).Scan(&free, &ended))
	if free && !ended {
		t.Error("end.sql returns free and not ended, want not free")
	}
}
