package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
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

type statement struct {
	*coalescer[ask, answered]
	hold chan struct{} // until hold is closed, a call of run with wait == false blocks
	fail func(group []ask) error
	free map[string]chan struct{} // by deal; an open channel simulates another transaction's lock on the deal's row

	mu     sync.Mutex
	groups [][]ask // arguments of the calls of run with wait == false
	aside  [][]ask // arguments of the calls of run with wait == true
}

func newStatement(t *testing.T) *statement {
	s := &statement{hold: make(chan struct{}), free: make(map[string]chan struct{})}
	s.coalescer = &coalescer[ask, answered]{
		row:     func(a ask) string { return fmt.Sprint(a.deal, " ", a.n) },
		deal:    func(a ask) string { return a.deal },
		size:    func(a ask) int { return a.bytes },
		skipped: func(a answered) bool { return a.skip },
		run: func(ctx context.Context, group []ask, wait bool) ([]answered, error) {
			s.mu.Lock()
			if wait {
				s.aside = append(s.aside, group)
			} else {
				s.groups = append(s.groups, group)
			}
			s.mu.Unlock()
			held := s.hold
			if wait {
				held = s.free[group[0].deal]
			}
			select {
			case <-held:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if s.fail != nil {
				if err := s.fail(group); err != nil {
					return nil, err
				}
			}
			answers := make([]answered, len(group))
			for i, a := range group {
				answers[i] = answered{a.n, !wait && s.free[a.deal] != nil && !closed(s.free[a.deal])}
			}
			return answers, nil
		},
	}
	s.start(newBudget())
	t.Cleanup(s.close)
	return s
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// behind queues `calls` in order while the statement of `first` is blocked. Then it unblocks
// the statement, and returns the answers and errors of `calls`.
func (s *statement) behind(t *testing.T, first ask, calls ...ask) ([]answered, []error) {
	t.Helper()
	answers, errs := make([]answered, len(calls)+1), make([]error, len(calls)+1)
	var group sync.WaitGroup
	for i, a := range append([]ask{first}, calls...) {
		group.Go(func() { answers[i], errs[i] = s.do(t.Context(), a) })
		s.await(t, func() bool { return len(s.groups) == 1 && s.queued() == i })
	}
	close(s.hold)
	group.Wait()
	return answers[1:], errs[1:]
}

func (s *statement) queued() int { return len(s.queue) }

func (s *statement) await(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		s.mu.Lock()
		ok := condition()
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the calls did not reach the expected state within a minute")
		}
	}
}

func (s *statement) sizes(groups [][]ask) (sizes []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range groups {
		sizes = append(sizes, len(g))
	}
	return sizes
}

func numbered(n, bytes int) []ask {
	all := make([]ask, n)
	for i := range all {
		all[i] = ask{"d", i, bytes}
	}
	return all
}

func TestGroupsAreBoundedAndAnsweredInFull(t *testing.T) {
	const kib = 1 << 10
	for what, row := range map[string]struct {
		calls []ask
		sizes []int // expected calls per group, without the group of the blocking first call
	}{
		"all that wait are one group":  {numbered(200, 0), []int{200}},
		"a bound on calls":             {numbered(2*maxGroup+10, 0), []int{maxGroup, maxGroup, 10}},
		"a bound on bytes":             {numbered(7, 300*kib), []int{3, 3, 1}},
		"a call above the bound":       {append(numbered(1, 2*maxGroupSize), numbered(3, kib)...), []int{1, 3}},
		"calls that fill it to a byte": {numbered(4, maxGroupSize/2), []int{2, 2}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStatement(t)
			answers, errs := s.behind(t, ask{deal: "d", n: -1}, row.calls...)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for i, a := range answers {
				if a.n != row.calls[i].n {
					t.Errorf("call %d got the answer of call %d, want its own", i, a.n)
				}
			}
			if got := s.sizes(s.groups)[1:]; !slices.Equal(got, row.sizes) {
				t.Errorf("groups of %v calls, want %v", got, row.sizes)
			}
			for _, g := range s.groups {
				if !slices.IsSortedFunc(g, func(a, b ask) int { return a.n - b.n }) && what == "a bound on calls" {
					t.Errorf("the calls of one deal ran as %v, want them in order", g)
				}
			}
		})
	}
}

func TestOnlyARolledBackGroupIsRunAgain(t *testing.T) {
	const n, failing = 10, 4
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
		t.Run(fmt.Sprint(row.err), func(t *testing.T) {
			s := newStatement(t)
			s.fail = func(group []ask) error {
				if slices.ContainsFunc(group, func(a ask) bool { return a.n == failing }) {
					return row.err
				}
				return nil
			}
			answers, errs := s.behind(t, ask{deal: "d", n: -1}, numbered(n, 0)...)
			for i := range answers {
				if fails := !row.again || i == failing; (errs[i] != nil) != fails || !fails && answers[i].n != i {
					t.Errorf("call %d: got %+v, %v; want it to fail: %v", i, answers[i], errs[i], fails)
				}
			}
			want := []int{1, n}
			if row.again {
				want = append(want, slices.Repeat([]int{1}, n)...)
			}
			if got := s.sizes(s.groups); !slices.Equal(got, want) {
				t.Errorf("groups of %v calls, want %v", got, want)
			}
		})
	}
}

// If another transaction has locked a deal's row, the calls of this deal wait as one group, and
// calls of other deals proceed. At most slowDeals such groups wait at once.
func TestCallsOnHeldDealsWaitAside(t *testing.T) {
	const each, slow = 5, slowDeals + 3
	s := newStatement(t)
	close(s.hold)
	for i := range slow {
		s.free[fmt.Sprint("slow ", i)] = make(chan struct{})
	}
	var group sync.WaitGroup
	call := func(a ask) {
		group.Go(func() {
			if got, err := s.do(t.Context(), a); err != nil || got.n != a.n || got.skip {
				t.Errorf("call %+v: got %+v, %v; want its own number and not skipped", a, got, err)
			}
		})
	}
	for i := range slow {
		for n := range each {
			call(ask{fmt.Sprint("slow ", i), i*each + n, 0})
		}
	}
	s.await(t, func() bool {
		s.coalescer.mu.Lock()
		defer s.coalescer.mu.Unlock()
		waiting := 0
		for _, calls := range s.coalescer.aside {
			waiting += len(calls)
		}
		for _, g := range s.aside {
			waiting += len(g)
		}
		return waiting == slow*each && len(s.aside) == slowDeals
	})
	for i := range 100 {
		if got, err := s.do(t.Context(), ask{fmt.Sprint("quick ", i), i, 0}); err != nil || got.n != i {
			t.Errorf("call %d on a deal that nobody holds: got %+v, %v; want its own number", i, got, err)
		}
	}
	if got := len(s.sizes(s.aside)); got != slowDeals {
		t.Errorf("%d deals wait at once, want %d", got, slowDeals)
	}
	for _, free := range s.free {
		close(free)
	}
	group.Wait()
	for _, g := range s.aside {
		if slices.ContainsFunc(g, func(a ask) bool { return a.deal != g[0].deal }) {
			t.Errorf("a waiting group has calls of several deals, want one deal: %v", g)
		}
	}
	// The calls of a deal wait in at most two groups: the first calls, and all that arrived later.
	if got := len(s.aside); got > 2*slow {
		t.Errorf("%d groups waited for %d deals with %d calls each, want at most %d groups", got, slow, each, 2*slow)
	}
	s.await(t, func() bool {
		s.coalescer.mu.Lock()
		defer s.coalescer.mu.Unlock()
		return len(s.coalescer.aside) == 0 && len(s.budget.slowDeals) == 0
	})
}

// If a call's context ends, its caller gets UNAVAILABLE at once. The call may be before a full
// queue, in a running statement, or waiting for a locked deal (aside).
func TestACallEndsWithItsContext(t *testing.T) {
	s := newStatement(t)
	s.free["slow"] = make(chan struct{})
	cancelled := func(where string, c *coalescer[ask, answered], a ask, reached func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := c.do(ctx, a); failed <- err }()
		s.await(t, reached)
		cancel()
		select {
		case err := <-failed:
			if !problem.Is(err, problem.Unavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got error %v, want UNAVAILABLE because of context.Canceled", where, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: a minute after the end of its context the call has not returned", where)
		}
	}
	cancelled("under way", s.coalescer, ask{deal: "quick"}, func() bool { return len(s.groups) == 1 })
	full := &coalescer[ask, answered]{queue: make(chan *call[ask, answered])}
	cancelled("before a full queue", full, ask{}, func() bool { return true })
	close(s.hold)
	cancelled("aside", s.coalescer, ask{deal: "slow"}, func() bool { return len(s.aside) == 1 })
}

func TestCloseInterruptsStatementsThatWait(t *testing.T) {
	const n = slowDeals + 2
	s := newStatement(t)
	close(s.hold)
	for i := range n {
		s.free[fmt.Sprint(i)] = make(chan struct{})
	}
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if _, err := s.do(t.Context(), ask{fmt.Sprint(i), i, 0}); !problem.Is(err, problem.Unavailable) {
				t.Errorf("call %d at close: got error %v, want UNAVAILABLE", i, err)
			}
		})
	}
	s.await(t, func() bool {
		s.coalescer.mu.Lock()
		defer s.coalescer.mu.Unlock()
		return len(s.coalescer.aside) == n && len(s.aside) == slowDeals
	})
	s.close()
	group.Wait()
}

// After a panic, the slots that the group took from the budget of concurrent statements are free.
func TestAPanicFailsItsGroupOnly(t *testing.T) {
	for what, aside := range map[string]bool{"in a group": false, "aside": true} {
		t.Run(what, func(t *testing.T) {
			s := newStatement(t)
			close(s.hold)
			if aside {
				s.free["sick"] = make(chan struct{})
			}
			s.fail = func(group []ask) error {
				if group[0].deal == "sick" && (!aside || closed(s.free["sick"])) {
					panic("a fault")
				}
				return nil
			}
			for n := range 2*statements + 2*slowDeals { // more calls than the budget has slots: after a leak, a call would block
				failed := make(chan error, 1)
				go func() { _, err := s.do(t.Context(), ask{"sick", n, 0}); failed <- err }()
				if aside && n == 0 {
					s.await(t, func() bool { return len(s.aside) == 1 })
					close(s.free["sick"])
				}
				if err := <-failed; problem.From(err).Code != problem.Internal {
					t.Fatalf("call %d: got error %v, want INTERNAL", n, err)
				}
			}
			if got, err := s.do(t.Context(), ask{"well", 7, 0}); err != nil || got.n != 7 {
				t.Errorf("call 7 after the panics: got %+v, %v; want its own number", got, err)
			}
			s.await(t, func() bool { return len(s.budget.statements) == 0 && len(s.budget.slowDeals) == 0 })
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
