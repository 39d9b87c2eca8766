package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// Stream runs deals of every kind until Stop. A request without an answer is sent again, to the
// next deal-api.
type Stream struct {
	*RetryingClient
	stop    context.CancelFunc
	players sync.WaitGroup
	mu      sync.Mutex
	all     []*LoadDeal
}

const streamPlayers = 8

// StartStream starts the players: goroutines that run deals through the given clients of deal-api.
// Stop lets running deals finish, but the end of ctx interrupts them.
func StartStream(ctx context.Context, t testing.TB, stack *localstack.Stack, doors ...*Client) *Stream {
	s := &Stream{RetryingClient: &RetryingClient{Clients: doors}}
	more, stop := context.WithCancel(ctx)
	s.stop = stop
	t.Cleanup(func() { s.Stop() }) // the players call t.Errorf, which panics after the end of the test
	for i := range streamPlayers {
		s.players.Go(func() {
			for n := i; more.Err() == nil; n += streamPlayers {
				d := &LoadDeal{T: t, S: s.RetryingClient, Ctx: ctx, Past: stack.Chain().RoundAt(time.Now().Unix()) - 10}
				if err := d.Play(n); err != nil {
					t.Errorf("deal %d, %s: %v", n, d.Id, err)
				}
				s.mu.Lock()
				s.all = append(s.all, d)
				s.mu.Unlock()
			}
		})
	}
	return s
}

// Played returns the finished deals, in the order in which they finished.
func (s *Stream) Played() []*LoadDeal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Stop stops the players and returns all deals.
func (s *Stream) Stop() []*LoadDeal {
	s.stop()
	s.players.Wait()
	return s.all
}

// End stops the players and waits until every deal has ended. It requires that all answers that the
// players received still hold, and that the database satisfies Invariants.
func (s *Stream) End(t testing.TB, stack *localstack.Stack) {
	t.Helper()
	all := s.Stop()
	OpenDB(t, stack).Converged()
	for _, d := range all {
		if err := d.Ended(); err != nil {
			t.Errorf("deal %s: %v", d.Id, err)
		}
	}
	Invariants(t, stack)
	t.Logf("%d deals, %d requests", len(all), s.Attempts.Load())
}
