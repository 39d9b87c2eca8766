//go:build long

package long

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// A stream of deals of every kind goes on while processes are killed at random
// moments: every one of them ends as its parties made it end, and whatever a
// client was told with a 2xx stays true.
func TestSoakUnderKills(t *testing.T) {
	t.Parallel()
	const (
		deals, players = 150, 12
		kills          = 12
		seed           = 20
	)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})
	twoLogs := map[string][]string{e2e.SecondAPI: e2e.SecondLogOf(stack), e2e.SecondWorker: e2e.SecondLogOf(stack)}
	for name, env := range twoLogs {
		if err := stack.Restart(t.Context(), name, env...); err != nil {
			t.Fatal(err)
		}
	}
	s := &e2e.Stubborn{Doors: []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*e2e.Patience)
	defer cancel()

	killed := make(chan error, 1)
	go func() { killed <- killAtRandom(ctx, stack, s, rand.New(rand.NewPCG(seed, seed)), kills, twoLogs) }()
	numbers := make(chan int)
	go func() {
		defer close(numbers)
		// As many as said, and on until the last kill.
		for n := 0; n < deals || len(killed) == 0; n++ {
			select {
			case numbers <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var all []*e2e.Soaked
	var wg sync.WaitGroup
	for range players {
		wg.Go(func() {
			for n := range numbers {
				d := &e2e.Soaked{T: t, S: s, Ctx: ctx, Past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				if err := d.Play(n); err != nil {
					t.Errorf("deal %d, %s: %v", n, d.Id, err)
				}
				mu.Lock()
				all = append(all, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	e2e.Database(t, stack).Converged()
	e2e.Invariants(t, stack)
	for _, d := range all {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	t.Logf("%d deals, %d requests, %d kills", len(all), s.Attempts.Load(), kills)
}

// killAtRandom kills one or two processes at once and starts them again. Its
// moments are counted in requests, so that the machine's speed is no part of it.
func killAtRandom(ctx context.Context, stack *localstack.Stack, s *e2e.Stubborn, r *rand.Rand, kills int, env map[string][]string) error {
	for kills > 0 {
		if err := s.Passes(ctx, 30+r.Int64N(90)); err != nil {
			return err
		}
		var down []string
		for _, i := range r.Perm(len(stack.Names()))[:min(kills, 1+r.IntN(2))] {
			down = append(down, stack.Names()[i])
		}
		kills -= len(down)
		for _, name := range down {
			stack.Kill(name)
		}
		if err := s.Passes(ctx, r.Int64N(40)); err != nil {
			return err
		}
		for _, name := range down {
			if err := stack.Start(ctx, name, env[name]...); err != nil {
				return err
			}
		}
	}
	return nil
}
