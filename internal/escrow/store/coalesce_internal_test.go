package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

type ask struct {
	deal  string
	n     int
	bytes int
}

type answered struct {
	n    int
	skip bool
}

// statement is a coalescer of a table whose deals with a name from "slow" on are locked until `free`
// is closed. A call of the deal "sick" panics.
type statement struct {
	*coalescer[ask, answered]
	free chan struct{}

	mu    sync.Mutex
	aside [][]ask // arguments of the calls of run with wait == true
}

// Calls for one row, of which a statement takes one, leave room for others behind them.
func TestCallsForOneRowKeepOutNoOthers(t *testing.T) {
	for name, bytes := range map[string]int{"many": 0, "large": maxGroupSize - 10} {
		t.Run(name, func(t *testing.T) {
			joins := newStatement().fits()
			for i := range 2 * maxGroup {
				if joined := joins(ask{"a", 1, bytes}); joined != (i == 0) {
					t.Fatalf("call %d of the row joins the statement: %v, want that only the first does", i, joined)
				}
			}
			if !joins(ask{"b", 1, 10}) || joins(ask{"b", 2, maxGroupSize}) {
				t.Error("want that the call for another row joins, and one that is too large does not")
			}
		})
	}
}

func newStatement() *statement {
	s := &statement{free: make(chan struct{})}
	locked := func(a ask) bool {
		select {
		case <-s.free:
			return false
		default:
			return strings.HasPrefix(a.deal, "slow")
		}
	}
	s.coalescer = &coalescer[ask, answered]{
		row:     func(a ask) string { return fmt.Sprint(a.deal, " ", a.n) },
		deal:    func(a ask) string { return a.deal },
		size:    func(a ask) int { return a.bytes },
		skipped: func(a answered) bool { return a.skip },
		run: func(ctx context.Context, group []ask, wait bool) ([]answered, error) {
			if wait {
				s.mu.Lock()
				s.aside = append(s.aside, group)
				s.mu.Unlock()
				select {
				case <-s.free:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			answers := make([]answered, len(group))
			for i, a := range group {
				if strings.HasSuffix(a.deal, "sick") && !locked(a) {
					panic("a fault")
				}
				answers[i] = answered{a.n, locked(a)}
			}
			return answers, nil
		},
	}
	s.start(newSlots())
	return s
}

func (s *statement) waiting() [][]ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.aside)
}

func TestStatementsAreBounded(t *testing.T) {
	const kib = 1 << 10
	numbered := func(n, bytes int) []ask {
		all := make([]ask, n)
		for i := range all {
			all[i] = ask{"d", i, bytes}
		}
		return all
	}
	for what, row := range map[string]struct {
		calls []ask
		fit   int // how many of the calls fit in the first statement
	}{
		"few":                          {numbered(200, 0), 200},
		"a bound on calls":             {numbered(maxGroup+10, 0), maxGroup},
		"a bound on bytes":             {numbered(7, 300*kib), 3},
		"a call above the bound":       {append(numbered(1, 2*maxGroupSize), ask{"e", 1, kib}), 1},
		"calls that fill it to a byte": {numbered(4, maxGroupSize/2), 2},
		"a row that is taken":          {append(numbered(3, 0), numbered(1, 0)...), 3},
	} {
		s := &coalescer[ask, answered]{row: func(a ask) string { return fmt.Sprint(a.deal, " ", a.n) }, size: func(a ask) int { return a.bytes }}
		fits, n := s.fits(), 0
		for n < len(row.calls) && fits(row.calls[n]) {
			n++
		}
		if n != row.fit {
			t.Errorf("%s: %d calls fit, want %d", what, n, row.fit)
		}
	}
}

func TestOnlyARolledBackGroupIsRunAgain(t *testing.T) {
	for _, row := range []struct {
		err   error
		again bool
	}{
		{&pgconn.PgError{Code: "23505", ConstraintName: "idempotency_pkey"}, true},
		{&pgconn.PgError{Code: "40P01"}, true},
		{&pgconn.PgError{Code: "40001"}, true},
		{&pgconn.PgError{Code: "55P03"}, false}, // lock timeout: not retried, because each call would wait for the lock again
		{&pgconn.PgError{Code: "57014"}, false},
		{errors.New("connection reset"), false},
	} {
		if retriable(row.err) != row.again {
			t.Errorf("%v: retriable is %t, want %t", row.err, !row.again, row.again)
		}
	}
}

// If another transaction has locked a deal's row, the calls of this deal wait as one group, and
// calls of other deals proceed. At most slowDeals such groups wait at once.
func TestCallsOnHeldDealsWaitAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, slow = 5, slowDeals + 3
		s := newStatement()
		call := func(a ask) {
			if got, err := s.do(t.Context(), a); err != nil || got.n != a.n || got.skip {
				t.Errorf("call %+v: got %+v, %v; want its own number and not skipped", a, got, err)
			}
		}
		for i := range slow {
			for n := range each {
				go call(ask{fmt.Sprint("slow ", i), i*each + n, 0})
			}
		}
		synctest.Wait()
		for i := range 100 {
			call(ask{fmt.Sprint("quick ", i), i, 0})
		}
		if got := len(s.waiting()); got != slowDeals {
			t.Errorf("%d deals wait at once, want %d", got, slowDeals)
		}
		close(s.free)
		synctest.Wait()
		for _, g := range s.waiting() {
			if slices.ContainsFunc(g, func(a ask) bool { return a.deal != g[0].deal }) {
				t.Errorf("a waiting group has calls of several deals, want one deal: %v", g)
			}
		}
		// The calls of a deal wait in at most two groups: the first calls, and all that arrived later.
		if got := len(s.waiting()); got > 2*slow {
			t.Errorf("%d groups waited for %d deals with %d calls each, want at most %d groups", got, slow, each, 2*slow)
		}
		if len(s.coalescer.aside) != 0 || len(s.slots.slowDeals) != 0 {
			t.Errorf("%d deals and %d slots are still in use, want none", len(s.coalescer.aside), len(s.slots.slowDeals))
		}
		s.close()
	})
}

// A call whose context ends or whose store closes gets UNAVAILABLE, also while it waits for a lock.
func TestWaitingCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatement()
		ctx, cancel := context.WithCancel(t.Context())
		var ends sync.WaitGroup
		call := func(ctx context.Context, deal string) {
			ends.Go(func() {
				if _, err := s.do(ctx, ask{deal, 0, 0}); !problem.Is(err, problem.Unavailable) {
					t.Errorf("%s: got error %v, want UNAVAILABLE", deal, err)
				}
			})
			synctest.Wait()
		}
		call(ctx, "slow, its context ends")
		cancel()
		ends.Wait()
		for n := range slowDeals + 2 {
			call(t.Context(), fmt.Sprint("slow at close ", n))
		}
		s.close()
		ends.Wait()
	})
}

// A call that ends while the database answers others gets OVERLOADED.
func TestABusyQueueIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatement()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.AfterFunc(time.Second/2, func() {
			if _, err := s.do(t.Context(), ask{"well", 1, 0}); err != nil {
				t.Error(err)
			}
		})
		if _, err := s.do(ctx, ask{"slow", 0, 0}); !problem.Is(err, problem.Overloaded) {
			t.Errorf("got error %v, want OVERLOADED", err)
		}
		s.close()
	})
}

// After a panic, the slots that the group took from the budget of concurrent statements are free.
func TestAPanicFailsItsGroupOnly(t *testing.T) {
	for _, deal := range []string{"sick", "slow and sick"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStatement()
			time.AfterFunc(time.Second, func() { close(s.free) })
			for n := range 2*statements + 2*slowDeals { // more calls than the budget has slots: after a leak, a call would block
				if _, err := s.do(t.Context(), ask{deal, n, 0}); problem.From(err).Code != problem.Internal {
					t.Fatalf("call %d: got error %v, want INTERNAL", n, err)
				}
			}
			if got, err := s.do(t.Context(), ask{"well", 7, 0}); err != nil || got.n != 7 {
				t.Errorf("call 7 after the panics: got %+v, %v; want its own number", got, err)
			}
			s.close()
		})
	}
}

// Appendix A of the Postgres documentation lists the SQLSTATEs.
func TestOnlyAnOutageIsUnavailable(t *testing.T) {
	pg := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for _, row := range []struct {
		err  error
		code problem.Code // empty: translate returns err unchanged
	}{
		{pg("08006"), problem.Unavailable}, // connection failure
		{pg("53300"), problem.Unavailable}, // too many connections
		{pg("57014"), problem.Unavailable}, // statement timeout
		{pg("55P03"), problem.Unavailable}, // lock timeout
		{pg("40P01"), problem.Unavailable}, // deadlock
		{io.ErrUnexpectedEOF, problem.Unavailable},
		{context.DeadlineExceeded, problem.Unavailable},
		{pg("25006"), problem.ReadOnly}, // read-only database
		{ErrNotFound, ""},
		{ErrReplayed, ""},
		{pg("23505"), ""}, // unique violation
		{pg("42P01"), ""}, // undefined table
		{pg("22021"), ""}, // invalid byte sequence
	} {
		got := translate(row.err)
		if !errors.Is(got, row.err) || row.code == "" && got != row.err {
			t.Errorf("translate(%v) = %v, want it unchanged or wrapped", row.err, got)
		}
		if row.code != "" && (!problem.Is(got, row.code) || problem.From(got).RetryAfter <= 0) {
			t.Errorf("translate(%v) = %v, want %v with Retry-After", row.err, got, row.code)
		}
	}
}
