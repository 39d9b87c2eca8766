package limits

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// networkBodies is how many large bodies one network may send at the same time, separately for
// callers with and without an invite token (see pool). A further large body waits after its first
// 64 KiB. So one client cannot use all the memory for bodies or keep all cores busy with reading.
const networkBodies = 8

// senders limits the large bodies that each network sends at the same time (networkBodies).
type senders struct {
	mu sync.Mutex
	// mu guards `networks` and `sender.calls`. An entry of `networks` is removed when its `calls` is 0.
	networks map[string]*sender
}

type sender struct {
	places *semaphore.Weighted
	calls  int // number of calls that send a large body or wait to send one
}

// acquire waits for one of the network's networkBodies places. If ctx ends first, acquire
// returns an error. After acquire returns nil, the caller MUST call release.
func (s *senders) acquire(ctx context.Context, network string) error {
	s.mu.Lock()
	one := s.networks[network]
	if one == nil {
		one = &sender{places: semaphore.NewWeighted(networkBodies)}
		s.networks[network] = one
	}
	one.calls++
	s.mu.Unlock()
	err := one.places.Acquire(ctx, 1)
	if err != nil {
		s.leave(network)
	}
	return err
}

// waits reports whether a large body of the network is blocked in acquire.
func (s *senders) waits(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.networks[network]
	return one != nil && one.calls > networkBodies
}

func (s *senders) release(network string) { s.leave(network).places.Release(1) }

func (s *senders) leave(network string) *sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.networks[network]
	if one.calls--; one.calls == 0 {
		delete(s.networks, network)
	}
	return one
}
