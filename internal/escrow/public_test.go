package escrow_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// A popular public deal is read and rendered about once a second, however many read it. A bundle follows the certificate.
func TestAnAudienceCostsOneReader(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := h.split(t, func(d *escrow.Declared) { d.Audience = deal.AudiencePublic }).revealed(t)
	svc := h.replica()
	var rendered, bundles atomic.Int64
	render := func(v escrow.View, b *escrow.Bundle) ([]byte, error) {
		rendered.Add(1)
		if b != nil {
			bundles.Add(1)
			if b.Own != nil || b.Openings != nil {
				t.Errorf("an audience gets own_input %v and %d openings, want neither", b.Own, len(b.Openings))
			}
		}
		return json.Marshal(v.State)
	}
	began := time.Now()
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for range 200 {
				if body, err := svc.Public(t.Context(), g.id, render); err != nil || string(body) != `"COMPUTED"` {
					t.Errorf("an audience reads %s, %v; want COMPUTED", body, err)
					return
				}
			}
		})
	}
	readers.Wait()
	if most := int64(time.Since(began)/time.Second) + 2; rendered.Load() > most || bundles.Load() != rendered.Load() {
		t.Errorf("3,200 reads made %d answers, %d with a bundle; want at most %d, all with one", rendered.Load(), bundles.Load(), most)
	}
	if _, err := svc.Public(context.Background(), h.split(t, nil).id, render); !problem.Is(err, problem.DealNotFound) {
		t.Errorf("a private deal is answered %v, want DEAL_NOT_FOUND", err)
	}
}

// Strangers who ask for public deals, or for keys, leave connections to the database for others.
func TestStrangersLeaveConnections(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	svc := h.replica()
	p := of(budget.NewProcess(10)).ok(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lock := of(h.sql.Begin(ctx)).ok(t)
	defer func() { _ = lock.Rollback(context.WithoutCancel(ctx)) }() // else a failure waits for the lock's connection
	_ = of(lock.Exec(ctx, "LOCK TABLE deals, api_keys IN ACCESS EXCLUSIVE MODE")).ok(t)
	var strangers sync.WaitGroup
	for range 16 {
		ask := func(what func(context.Context)) {
			strangers.Go(func() {
				ctx, call := p.Begin(ctx, rand.Text())
				defer call.End()
				what(ctx)
			})
		}
		ask(func(ctx context.Context) { _, _ = svc.Public(ctx, "d_"+rand.Text()[:21]+"A", nil) })
		ask(func(ctx context.Context) { _, _ = svc.CreateKey(ctx, nil) })
	}
	waiting := func() (n int) {
		check(t, h.sql.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n))
		return n
	}
	for range 100 { // until the other strangers have come, too
		for waiting() < 4 {
			time.Sleep(time.Millisecond)
		}
	}
	if _, err := h.store.Now(ctx); err != nil {
		t.Errorf("a statement beside them: %v", err)
	}
	if n := waiting(); n > 4 {
		t.Errorf("%d connections wait for strangers, want 4", n)
	}
	check(t, lock.Rollback(ctx))
	strangers.Wait()
}
