package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// calls are all that a store can be asked about its tables.
func calls(s *store.Store, dealID string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"InsertKey":    func(ctx context.Context) error { return s.InsertKey(ctx, random32(), nil) },
		"UseKey":       func(ctx context.Context) error { _, _, err := s.UseKey(ctx, random32(), 1); return err },
		"PartyByToken": func(ctx context.Context) error { return third(s.PartyByToken(ctx, random32())) },
		"CreateDeal":   func(ctx context.Context) error { return second(s.CreateDeal(ctx, newDeal(0, nil))) },
		"Declaration":  func(ctx context.Context) error { return second(s.Declaration(ctx, dealID)) },
		"Snapshot":     func(ctx context.Context) error { return second(s.Snapshot(ctx, dealID, store.Everyone(2))) },
		"Commit":       func(ctx context.Context) error { return second(s.Commit(ctx, store.Act{DealID: dealID})) },
		"Reveal":       func(ctx context.Context) error { return second(s.Reveal(ctx, store.Act{DealID: dealID})) },
		"CatchUp":      func(ctx context.Context) error { return s.CatchUp(ctx, dealID) },
		"End": func(ctx context.Context) error {
			return second(s.End(ctx, &store.Ending{DealID: dealID, Parties: 2, From: deal.Revealing, To: deal.Void}))
		},
		"Reject": func(ctx context.Context) error {
			return second(s.Reject(ctx, &store.Ending{DealID: dealID}, store.Act{}))
		},
		"Cancel":        func(ctx context.Context) error { return second(s.Cancel(ctx, dealID, nil)) },
		"Certificate":   func(ctx context.Context) error { return second(s.Certificate(ctx, "c_1")) },
		"CertificateOf": func(ctx context.Context) error { return second(s.CertificateOf(ctx, dealID)) },
		"SetSignature":  func(ctx context.Context) error { return s.SetSignature(ctx, "c_1", "x", nil) },
		"Publish":       func(ctx context.Context) error { return second(s.Publish(ctx, store.Publication{CertID: "c_1"})) },
		"Due":           func(ctx context.Context) error { return second(s.Due(ctx, 3, 10, 60, nil)) },
		"Complete":      func(ctx context.Context) error { return second(s.Complete(ctx, 10)) },
		"Load":          func(ctx context.Context) error { return second(s.Load(ctx, 60)) },
		"FindReplay":    func(ctx context.Context) error { return second(s.FindReplay(ctx, random32(), nil)) },
		"SetResponse":   func(ctx context.Context) error { return second(s.SetResponse(ctx, random32(), []byte("x"))) },
		"ExpireReplay":  func(ctx context.Context) error { return s.ExpireReplay(ctx, random32()) },
		"Sweep":         func(ctx context.Context) error { return second(s.Sweep(ctx)) },
		"PutRound":      func(ctx context.Context) error { return s.PutRound(ctx, "00", 1, "00", "00") },
		"Round":         func(ctx context.Context) error { return third(s.Round(ctx, "00", 1)) },
	}
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("%s: %v, want UNAVAILABLE", what, err)
	}
}

// outOfReach holds every call to a 503, all at once.
func outOfReach(t *testing.T, s *store.Store, dealID string, bound time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var group sync.WaitGroup
	for what, call := range calls(s, dealID) {
		group.Go(func() { unavailable(t, what, call(ctx)) })
	}
	group.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), bound)
	defer cancel()
	if s.Ready(ctx) == nil {
		t.Error("it is ready")
	}
}

// comesBack waits until the database takes the last commit and holds it.
func comesBack(t *testing.T, f *fixture, d *store.Declaration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		now, err := (*store.Snapshot)(nil), error(nil)
		if _, err = f.Commit(ctx, act(d, 1)); err == nil { // an earlier try may have been stored and its answer lost
			now, err = f.Snapshot(ctx, d.DealID, store.Only(1))
		}
		if err == nil {
			if now.Commits != 2 || now.Phase != deal.Revealing || now.Parts[0].Commitment == nil {
				t.Errorf("after the outage: %+v", now)
			}
			return
		}
		if !problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
			t.Fatalf("after the outage: %v", err)
		}
	}
}

func TestPostgresIsOutOfReach(t *testing.T) {
	server := servertest.StartPostgres(t)
	url, err := server.EnsureDatabase(t.Context(), "fairpact")
	check(t, err)
	check(t, store.Migrate(t.Context(), url))
	f := &fixture{url: url}
	f.Store = f.open(t)

	t.Run("stopped", func(t *testing.T) {
		d, before := f.create(t, nil), f.Server()
		f.commit(t, d, 0)
		check(t, server.Stop())
		outOfReach(t, f.Store, d.DealID, time.Minute)
		check(t, server.Restart(t.Context()))
		comesBack(t, f, d)
		if f.Server() == before {
			t.Errorf("after a restart the server is still identified as %s", before)
		}
	})
	// Every table is locked: a database that takes calls and answers none. What is
	// answered with a 503 may take place later, so the calls are about another deal.
	t.Run("hung", func(t *testing.T) {
		asked, d := f.create(t, nil), f.create(t, nil)
		f.commit(t, d, 0)
		tx, err := f.connect(t).Begin(t.Context())
		check(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE deals, parties, commitments, reveals, certificates, api_keys, idempotency, beacon_rounds, goose_db_version")
		check(t, err)
		outOfReach(t, f.Store, asked.DealID, 200*time.Millisecond)
		check(t, tx.Rollback(t.Context()))
		comesBack(t, f, d)
	})
}
