package limits

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
)

// ErrTotal and ErrShare are returned by Shares.Take for an exceeded bound.
var (
	ErrTotal = errors.New("the bound of all networks is exceeded")
	ErrShare = errors.New("the share of the network is exceeded")
)

// Shares counts what each client network (see Network) holds of one thing, for example bytes
// or connections. One bound limits all networks together, another one limits each network. The
// network "" has no share of its own. Shares is safe for concurrent use.
type Shares struct {
	most, each int64

	mu sync.Mutex
	// mu guards the fields below. A network that holds nothing has no entry.
	total    int64
	networks map[string]*share
}

type share struct {
	held  int64               // with the calls that block in Wait
	turns *semaphore.Weighted // only for Wait
	idle  list.List           // only for Connections: of *connection, longest idle first; guarded by Connections.mu
}

// NewShares bounds all networks together to `most` (not by Wait), and each network to `each`.
func NewShares(most, each int64) *Shares {
	return &Shares{most: most, each: each, networks: map[string]*share{}}
}

// Take counts n more for a network. If a bound would be exceeded, Take counts nothing and
// returns ErrShare or ErrTotal. `own` is what the same call has taken before: a network may
// exceed its share for a single call, because waiting for itself would not help.
func (s *Shares) Take(network string, own, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.of(network).held
	switch {
	case network != "" && held > own && held+n > s.each:
		return ErrShare
	case s.total+n > s.most:
		return ErrTotal
	}
	s.add(network, n)
	return nil
}

// Wait takes 1 for a network, and blocks while the network holds its share. It returns an error
// if ctx ends first. Leave gives back what Wait took.
func (s *Shares) Wait(ctx context.Context, network string) error {
	s.mu.Lock()
	s.add(network, 1)
	turns := s.of(network).turns
	s.mu.Unlock()
	err := turns.Acquire(ctx, 1)
	if err != nil {
		s.Release(network, 1)
	}
	return err
}

// Leave gives back what Wait took.
func (s *Shares) Leave(network string) {
	s.mu.Lock()
	turns := s.of(network).turns
	s.mu.Unlock()
	s.Release(network, 1)
	turns.Release(1)
}

// Waits reports whether a call of the network blocks in Wait.
func (s *Shares) Waits(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.networks[network]
	return one != nil && one.held > s.each
}

// Release gives back n of what Take took.
func (s *Shares) Release(network string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(network, -n)
}

// idleOf returns the idle list of a network that holds something. It is the same list until the
// network holds nothing.
func (s *Shares) idleOf(network string) *list.List {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.of(network).idle
}

func (s *Shares) of(network string) *share {
	one := s.networks[network]
	if one == nil {
		one = &share{turns: semaphore.NewWeighted(s.each)}
	}
	return one
}

func (s *Shares) add(network string, n int64) {
	one := s.of(network)
	one.held += n
	s.total += n
	if s.networks[network] = one; one.held == 0 {
		delete(s.networks, network)
	}
}

// Held returns what all networks hold together, and the number of networks that hold something.
func (s *Shares) Held() (total int64, networks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, len(s.networks)
}
