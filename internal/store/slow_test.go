package store_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// A deal whose row another transaction holds keeps its own calls waiting and no
// others; nothing is lost meanwhile.
func TestASlowDealHoldsUpNoOther(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 6 // more than may wait for their locks at once
	var committing, revealing, overdue []*store.Declaration
	var ids []string
	for range n {
		committing, revealing, overdue = append(committing, f.create(t, parties(3))), append(revealing, f.create(t, random)), append(overdue, f.create(t, nil))
	}
	var endings []*store.Ending
	for i := range n {
		f.commit(t, revealing[i], 0, 1)
		f.commit(t, overdue[i], 0)
		endings = append(endings, f.ending(t, overdue[i], deal.Void))
		ids = append(ids, committing[i].DealID, revealing[i].DealID, overdue[i].DealID)
	}
	tx := f.hold(t, f.connect(t), ids...)

	var slow sync.WaitGroup
	var mu sync.Mutex
	answered, last := 0, 0
	call := func(what string, do func() (done, all bool, err error)) {
		slow.Go(func() {
			done, all, err := do()
			if err != nil || !done {
				t.Errorf("%s of a slow deal: done %v, %v", what, done, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answered++
			if all {
				last++
			}
		})
	}
	for i := range n {
		for p := range 3 {
			call("commit", func() (bool, bool, error) { a, err := f.Commit(ctx, act(committing[i], p)); return a.Done, a.All, err })
		}
		for p := range 2 {
			call("reveal", func() (bool, bool, error) { a, err := f.Reveal(ctx, act(revealing[i], p)); return a.Done, a.All, err })
		}
		call("end", func() (bool, bool, error) { done, err := f.End(ctx, endings[i]); return done, false, err })
	}
	f.awaitWaiting(t, 3) // a commit, a reveal and an end at least
	for range 2 {
		var others [8]store.NewDeal
		for i := range others {
			others[i] = f.declare(t, nil)
		}
		f.atOnce(len(others), func(i int, _ *store.Store) { // through the same store as the slow calls
			d := others[i]
			quick(t, "create", func() (bool, error) { c, err := f.CreateDeal(ctx, d); return c.OK, err })
			for p := range 2 {
				quick(t, "commit", func() (bool, error) { return isDone(f.Commit(ctx, act(d.Declaration, p))) })
			}
			for p := range 2 {
				quick(t, "reveal", func() (bool, error) { return isDone(f.Reveal(ctx, act(d.Declaration, p))) })
			}
			quick(t, "end", func() (bool, error) {
				e, err := ending(ctx, f.Store, d.Declaration, deal.Computed)
				if err != nil {
					return false, err
				}
				return f.End(ctx, e)
			})
		})
	}
	for _, d := range []*store.Declaration{committing[0], revealing[0], overdue[0]} {
		f.stands(t, d) // a slow deal can be read
	}
	mu.Lock()
	if answered != 0 {
		t.Errorf("%d calls on slow deals are answered while their rows are held", answered)
	}
	mu.Unlock()
	check(t, tx.Rollback(ctx))
	slow.Wait()
	if last < 2*n {
		t.Errorf("%d calls are told that nobody is missing, want at least one for each of %d deals", last, 2*n)
	}
	for i := range n {
		c, r, e := f.stands(t, committing[i]), f.stands(t, revealing[i]), f.stands(t, overdue[i])
		if c.Commits != 3 || c.Phase != deal.Revealing || r.Reveals != 2 || r.RevealsClosedAt == nil || e.Phase != deal.Void {
			t.Errorf("slow deals afterwards: %+v, %+v, %+v", c, r, e)
		}
	}
}

// quick holds a call on another deal to its success. The slow deals are let go
// only after all of these, so one that waits for them fails by its context.
func quick(t *testing.T, what string, do func() (bool, error)) {
	t.Helper()
	if done, err := do(); err != nil || !done {
		t.Errorf("%s of another deal: %v, %v", what, done, err)
	}
}

// A deal whose row is let go between the lock that skipped it and the decision
// was not decided on: that is no answer to the caller yet.
func TestADealThatTheLockSkippedIsNotDecidedOn(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := f.create(t, nil)
	e := f.ending(t, d, deal.Void)
	holder, err := f.connect(t).Begin(ctx)
	check(t, err)
	_, err = holder.Exec(ctx, "SELECT FROM deals WHERE deal_id = $1 FOR UPDATE", d.DealID)
	check(t, err)
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
		t.Error("end.sql answers that the deal was free and has changed, but it has not: the caller takes this for a lost race")
	}
}

func statement(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("sql/" + name + ".sql")
	check(t, err)
	return string(text)
}

// A panic while an answer is read is an error, and costs the pool no connection.
func TestAPanicInAScanFreesItsConnection(t *testing.T) {
	f := newFixture(t)
	const connections = 2
	s, err := store.Open(t.Context(), f.url, connections)
	check(t, err)
	t.Cleanup(s.Close)
	for range 2 * connections {
		if err := s.PanicInScan(t.Context()); problem.From(err).Code != problem.Internal {
			t.Fatalf("%v, want INTERNAL", err)
		}
	}
	check(t, second(s.Now(t.Context())))
}
