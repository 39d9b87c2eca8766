package limits

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	held  int64
	queue []chan struct{} // of the calls of Wait that block, first come first
}

// NewShares bounds all networks together to `most`, and each network to `each`.
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
	defer s.tidy(network)
	switch {
	case network != "" && held > own && held+n > s.each:
		return ErrShare
	case s.total+n > s.most:
		return ErrTotal
	}
	s.add(network, n)
	return nil
}

// Wait takes 1 for a network. It blocks while the network holds its share. It returns an error
// if ctx ends first. Only the share bounds Wait, not the total.
func (s *Shares) Wait(ctx context.Context, network string) error {
	s.mu.Lock()
	one := s.of(network)
	if one.held < s.each {
		s.add(network, 1)
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	one.queue = append(one.queue, turn)
	s.mu.Unlock()
	select {
	case <-turn: // Release has counted it
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(one.queue, turn); at >= 0 {
		one.queue = slices.Delete(one.queue, at, at+1)
		return ctx.Err()
	}
	return nil // the turn came at the same moment
}

// Waits reports whether a call of the network blocks in Wait.
func (s *Shares) Waits(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.networks[network]
	return one != nil && len(one.queue) > 0
}

// Release gives back n of a network, and lets the next call of the network leave Wait.
func (s *Shares) Release(network string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(network, -n)
	one := s.of(network)
	for len(one.queue) > 0 && one.held < s.each {
		s.add(network, 1)
		close(one.queue[0])
		one.queue = one.queue[1:]
	}
	s.tidy(network)
}

func (s *Shares) of(network string) *share {
	one := s.networks[network]
	if one == nil {
		one = &share{}
		s.networks[network] = one
	}
	return one
}

func (s *Shares) add(network string, n int64) {
	s.total += n
	s.of(network).held += n
}

func (s *Shares) tidy(network string) {
	if s.networks[network].held == 0 {
		delete(s.networks, network)
	}
}

// Held returns what all networks hold together, and the number of networks that hold something.
func (s *Shares) Held() (total int64, networks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, len(s.networks)
}
