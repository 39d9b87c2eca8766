package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// pair runs two things at the same moment on two replicas.
func pair(t *testing.T, b *bench, first, second func(*store.Store) (bool, error)) (one, other bool) {
	t.Helper()
	var group sync.WaitGroup
	start := make(chan struct{})
	run := func(s *store.Store, do func(*store.Store) (bool, error), done *bool) {
		group.Go(func() {
			<-start
			var err error
			if *done, err = do(s); err != nil {
				t.Error(err)
			}
		})
	}
	run(b.Store, first, &one)
	run(b.replica, second, &other)
	close(start)
	group.Wait()
	return one, other
}

const rounds = 40

// Of two concurrent last ones both are accepted, and nobody is missing to
// whoever asks after its own commit.
func TestTwoLastCommits(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for range rounds {
		d := b.created(t, nil)
		last := func(party int) func(*store.Store) (bool, error) {
			return func(s *store.Store) (bool, error) {
				if ok, err := s.Commit(ctx, d.DealID, party, [32]byte{}, nil); err != nil || !ok {
					return ok, err
				}
				_, missing, err := s.FirstMissingCommit(ctx, d.DealID, 0)
				if err != nil || missing {
					return !missing, err
				}
				return true, s.Advance(ctx, d.DealID)
			}
		}
		one, other := pair(t, b, last(0), last(1))
		if !one && !other {
			t.Fatal("each of two last parties sees the other missing")
		}
		if st := b.status(t, d.DealID); st.Phase != deal.Revealing || st.Commits != 2 {
			t.Fatalf("after both: %+v", st)
		}
	}
}

// An acknowledged commit or reveal is never named a flaker: of an insert and an
// end that was worked out without it, one takes place.
func TestInsertAgainstEnd(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	wins := map[string]int{}
	for i := range 2 * rounds {
		d := b.created(t, nil)
		b.commit(t, d, 0)
		insert := func(s *store.Store) (bool, error) { return s.Commit(ctx, d.DealID, 1, [32]byte{}, nil) }
		if i%2 == 1 {
			b.commit(t, d, 1)
			insert = func(s *store.Store) (bool, error) { return s.Reveal(ctx, d.DealID, 1, []byte("x"), nil) }
		}
		e := b.ending(t, d, deal.Void)
		inserted, ended := pair(t, b, insert, func(s *store.Store) (bool, error) { return s.End(ctx, e) })
		if inserted == ended {
			t.Fatalf("round %d: inserted %v and ended %v", i, inserted, ended)
		}
		st := b.status(t, d.DealID)
		if ended != (st.Phase == deal.Void) || ended != (st.CertID != nil) {
			t.Fatalf("round %d: ended %v and %+v", i, ended, st)
		}
		if n := b.count(t, "SELECT count(*) FROM certificates WHERE deal_id = $1", d.DealID); (n == 1) != ended {
			t.Fatalf("round %d: ended %v with %d certificates", i, ended, n)
		}
		wins[map[bool]string{true: "end", false: "insert"}[ended]]++
	}
	t.Log(wins)
}

// A rejection names everything it was worked out from: a reveal that comes
// first sends it back, one that comes later finds a VOID deal.
func TestRejectAgainstReveal(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for range rounds {
		d := b.created(t, nil)
		b.commit(t, d, 0, 1)
		e := b.ending(t, d, deal.Void)
		revealed, rejected := pair(t, b,
			func(s *store.Store) (bool, error) { return s.Reveal(ctx, d.DealID, 1, []byte("x"), nil) },
			func(s *store.Store) (bool, error) { return s.Reject(ctx, e, 0, []byte("no"), nil) })
		if revealed == rejected {
			t.Fatalf("revealed %v and rejected %v", revealed, rejected)
		}
		if st := b.status(t, d.DealID); st.Reveals != 1 || rejected != (st.Phase == deal.Void) {
			t.Fatalf("rejected %v and %+v", rejected, st)
		}
	}
}

func TestOneOfTwo(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for range rounds / 2 {
		for what, race := range map[string]func() (bool, bool){
			"the same commit": func() (bool, bool) {
				d := b.created(t, nil)
				commit := func(s *store.Store) (bool, error) { return s.Commit(ctx, d.DealID, 0, [32]byte{}, nil) }
				return pair(t, b, commit, commit)
			},
			"two ends": func() (bool, bool) {
				d := b.created(t, nil)
				one, other := b.ending(t, d, deal.Void), b.ending(t, d, deal.Void)
				return pair(t, b, func(s *store.Store) (bool, error) { return s.End(ctx, one) }, func(s *store.Store) (bool, error) { return s.End(ctx, other) })
			},
			"two rejections": func() (bool, bool) {
				d := b.created(t, nil)
				b.commit(t, d, 0, 1)
				one, other := b.ending(t, d, deal.Void), b.ending(t, d, deal.Void)
				return pair(t, b,
					func(s *store.Store) (bool, error) { return s.Reject(ctx, one, 0, []byte("no"), nil) },
					func(s *store.Store) (bool, error) { return s.Reject(ctx, other, 1, []byte("no"), nil) })
			},
			"cancel and a counterparty's commit": func() (bool, bool) {
				d := b.created(t, nil)
				return pair(t, b,
					func(s *store.Store) (bool, error) { return s.Cancel(ctx, d.DealID, nil) },
					func(s *store.Store) (bool, error) { return s.Commit(ctx, d.DealID, 1, [32]byte{}, nil) })
			},
		} {
			if one, other := race(); one == other {
				t.Fatalf("%s: %v and %v, want one of them", what, one, other)
			}
		}
	}
}

// behind holds a deal's row, starts do, waits until the database says that it
// waits for the row, lets the holder act and gives what do gave.
func (b *bench) behind(t *testing.T, dealID string, do func() (bool, error), act func(pgx.Tx)) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := b.sql.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "SELECT FROM deals WHERE deal_id = $1 FOR UPDATE", dealID); err != nil {
		t.Fatal(err)
	}
	var done bool
	var failed error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		done, failed = do()
	}()
	for waiting := 0; waiting == 0; {
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	act(tx)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	<-finished
	if failed != nil {
		t.Fatal(failed)
	}
	return done
}

// READ COMMITTED re-checks only the row that it waited for: what else is decided
// by must be read in the statement after the lock.
func TestDecidesAfterTheLock(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	exec := func(statement, dealID string) func(pgx.Tx) {
		return func(tx pgx.Tx) {
			if _, err := tx.Exec(ctx, statement, dealID); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := b.created(t, nil)
	if b.behind(t, d.DealID, func() (bool, error) { return b.Commit(ctx, d.DealID, 0, [32]byte{}, nil) },
		exec("UPDATE deals SET phase = 'VOID' WHERE deal_id = $1", d.DealID)) {
		t.Error("a commit is taken by a deal that ended while it waited")
	}
	const committed = "INSERT INTO commitments VALUES ($1, 1, sha256(''), 1)"
	d = b.created(t, nil)
	e := b.ending(t, d, deal.Void)
	if b.behind(t, d.DealID, func() (bool, error) { return b.End(ctx, e) }, exec(committed, d.DealID)) {
		t.Error("an end does not see the commit that it waited for")
	}
	d = b.created(t, nil)
	if b.behind(t, d.DealID, func() (bool, error) { return b.Cancel(ctx, d.DealID, nil) }, exec(committed, d.DealID)) {
		t.Error("a cancel does not see the commit that it waited for")
	}
	d = b.created(t, nil)
	b.commit(t, d, 0, 1)
	e = b.ending(t, d, deal.Void)
	if b.behind(t, d.DealID, func() (bool, error) { return b.Reject(ctx, e, 0, []byte("no"), nil) },
		exec("INSERT INTO reveals VALUES ($1, 1, 'x', 1)", d.DealID)) {
		t.Error("a rejection does not see the reveal that it waited for")
	}
}

// The clock is read after the lock is held: who waits past the deadline is late.
func TestTheClockIsReadAfterTheLock(t *testing.T) {
	b := newBench(t)
	d := b.created(t, nil)
	b.exec(t, "UPDATE deals SET commit_deadline = ceil(extract(epoch FROM clock_timestamp())) + 1 WHERE deal_id = $1", d.DealID)
	if b.behind(t, d.DealID, func() (bool, error) { return b.Commit(t.Context(), d.DealID, 0, [32]byte{}, nil) }, func(tx pgx.Tx) {
		const reached = "SELECT extract(epoch FROM clock_timestamp()) >= commit_deadline FROM deals WHERE deal_id = $1"
		for late := false; !late; {
			if err := tx.QueryRow(t.Context(), reached, d.DealID).Scan(&late); err != nil {
				t.Fatal(err)
			}
		}
	}) {
		t.Error("a commit that got its lock after the deadline is taken")
	}
}
