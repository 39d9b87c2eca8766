package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

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
	stack := own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})
	twoLogs := map[string][]string{secondAPI: secondLogOf(stack), secondWorker: secondLogOf(stack)}
	for name, env := range twoLogs {
		if err := stack.Restart(t.Context(), name, env...); err != nil {
			t.Fatal(err)
		}
	}
	s := &stubborn{doors: []*client{newClient(t, stack.URL(localstack.DealAPI)), newClient(t, stack.URL(secondAPI))}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
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
	var all []*soaked
	var wg sync.WaitGroup
	for range players {
		wg.Go(func() {
			for n := range numbers {
				d := &soaked{t: t, s: s, ctx: ctx, past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				if err := d.play(n); err != nil {
					t.Errorf("deal %d, %s: %v", n, d.id, err)
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
	database(t, stack).converged()
	invariants(t, stack)
	for _, d := range all {
		if err := d.ended(); err != nil {
			t.Errorf("deal %s: %v", d.id, err)
		}
	}
	t.Logf("%d deals, %d requests, %d kills", len(all), s.attempts.Load(), kills)
}

// killAtRandom kills one or two processes at once and starts them again. Its
// moments are counted in requests, so that the machine's speed is no part of it.
func killAtRandom(ctx context.Context, stack *localstack.Stack, s *stubborn, r *rand.Rand, kills int, env map[string][]string) error {
	for kills > 0 {
		if err := s.passes(ctx, 30+r.Int64N(90)); err != nil {
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
		if err := s.passes(ctx, r.Int64N(40)); err != nil {
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

// passes waits until so many more requests were sent.
func (s *stubborn) passes(ctx context.Context, requests int64) error {
	for until := s.attempts.Load() + requests; s.attempts.Load() < until; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the requests cease: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
