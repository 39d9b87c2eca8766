package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// calls are all that a store can be asked about its tables.
func calls(b *bench, dealID string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"InsertKey": func(ctx context.Context) error { return b.InsertKey(ctx, random32(), nil) },
		"UseKey":    func(ctx context.Context) error { return second(b.UseKey(ctx, random32())) },
		"PartyByToken": func(ctx context.Context) error {
			return third(b.PartyByToken(ctx, random32()))
		},
		"CreateDeal": func(ctx context.Context) error {
			return third(b.CreateDeal(ctx, &store.Static{DealID: "d_new", Labels: []string{"a", "b"}}, [][]byte{random32(), random32()}, nil))
		},
		"Static":             func(ctx context.Context) error { return second(b.Static(ctx, dealID)) },
		"Status":             func(ctx context.Context) error { return second(b.Status(ctx, dealID)) },
		"Standings":          func(ctx context.Context) error { return third(b.Standings(ctx, dealID)) },
		"Commit":             func(ctx context.Context) error { return second(b.Commit(ctx, dealID, 0, [32]byte{}, nil)) },
		"Reveal":             func(ctx context.Context) error { return second(b.Reveal(ctx, dealID, 0, []byte("x"), nil)) },
		"FirstMissingCommit": func(ctx context.Context) error { return third(b.FirstMissingCommit(ctx, dealID, 0)) },
		"FirstMissingReveal": func(ctx context.Context) error { return third(b.FirstMissingReveal(ctx, dealID, 0)) },
		"CloseReveals":       func(ctx context.Context) error { return b.CloseReveals(ctx, dealID) },
		"Advance":            func(ctx context.Context) error { return b.Advance(ctx, dealID) },
		"End": func(ctx context.Context) error {
			return second(b.End(ctx, &store.Ending{DealID: dealID, From: deal.Revealing, To: deal.Void}))
		},
		"Reject": func(ctx context.Context) error {
			return second(b.Reject(ctx, &store.Ending{DealID: dealID}, 0, nil, nil))
		},
		"Cancel":       func(ctx context.Context) error { return second(b.Cancel(ctx, dealID, nil)) },
		"SealedInputs": func(ctx context.Context) error { return second(b.SealedInputs(ctx, dealID)) },
		"Party":        func(ctx context.Context) error { return third(b.Party(ctx, dealID, 0)) },
		"Certificate":  func(ctx context.Context) error { return second(b.Certificate(ctx, "c_1")) },
		"SetSignature": func(ctx context.Context) error { return b.SetSignature(ctx, "c_1", "x", nil) },
		"SetLeaf":      func(ctx context.Context) error { return second(b.SetLeaf(ctx, "c_1", 1)) },
		"Due":          func(ctx context.Context) error { return second(b.Due(ctx, 3, 10, 60)) },
		"Complete":     func(ctx context.Context) error { return second(b.Complete(ctx, 10)) },
		"FindReplay":   func(ctx context.Context) error { return third(b.FindReplay(ctx, random32())) },
		"SetResponse":  func(ctx context.Context) error { return second(b.SetResponse(ctx, random32(), []byte("x"))) },
		"ExpireReplay": func(ctx context.Context) error { return b.ExpireReplay(ctx, random32()) },
		"Sweep":        func(ctx context.Context) error { return second(b.Sweep(ctx)) },
		"PutRound":     func(ctx context.Context) error { return b.PutRound(ctx, "00", 1, "00", "00") },
		"Round":        func(ctx context.Context) error { return third(b.Round(ctx, "00", 1)) },
	}
}

// outOfReach holds every call to a 503, asked one by one and all at once.
func outOfReach(t *testing.T, b *bench, dealID string, bound time.Duration) {
	t.Helper()
	var group sync.WaitGroup
	for what, call := range calls(b, dealID) {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			if err := call(ctx); !problem.Is(err, problem.Unavailable) {
				t.Errorf("%s: %v, want UNAVAILABLE", what, err)
			}
		})
	}
	group.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if b.Ready(ctx) == nil {
		t.Error("it is ready")
	}
}

// comesBack waits until the database takes a commit and holds it.
func comesBack(t *testing.T, b *bench, dealID string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		done, err := b.Commit(ctx, dealID, 1, [32]byte{1}, nil)
		if err == nil && !done { // an earlier try was inserted and its answer lost
			_, _, err = b.Party(ctx, dealID, 1)
		}
		if err == nil {
			break
		}
		if !problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
			t.Fatalf("after the outage: %v", err)
		}
	}
	if st, err := b.Status(ctx, dealID); err != nil || st.Commits != 2 || st.Phase != deal.Committing {
		t.Errorf("after the outage: %+v, %v", st, err)
	}
}

func TestPostgresIsAway(t *testing.T) {
	server := servertest.StartPostgres(t)
	url, err := server.EnsureDatabase(t.Context(), "fairpact")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	b := &bench{url: url}
	b.Store = b.open(t)
	d := b.created(t, nil)
	b.commit(t, d, 0)

	t.Run("stopped", func(t *testing.T) {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		outOfReach(t, b, d.DealID, time.Minute)
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		comesBack(t, b, d.DealID)
	})
	// Every table is locked away: a database that takes calls and answers none.
	// What was answered with a 503 may take place when it comes to, so it is asked
	// about another deal.
	t.Run("hung", func(t *testing.T) {
		asked, d := b.created(t, nil), b.created(t, nil)
		b.commit(t, d, 0)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE deals, parties, commitments, reveals, certificates, api_keys, idempotency, beacon_rounds, goose_db_version"); err != nil {
			t.Fatal(err)
		}
		outOfReach(t, b, asked.DealID, 200*time.Millisecond)
		if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		comesBack(t, b, d.DealID)
	})
}
