package escrow

import (
	"context"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

// Every deal costs one unit. Each 100 parties and each 10 KiB of declaration cost one more.
const (
	partiesPerUnit = 100
	bytesPerUnit   = 10 << 10
)

const (
	// A key at its limit causes at most one count in the database every recountEvery. This
	// process also counts again once it has created limit/recountAfter units for a key,
	// because other replicas create deals too.
	recountEvery = 10 * time.Second
	recountAfter = 16
)

// account holds what this process knows about one API key's open deals, in units. Between
// two counts in the database it misses deals that end, and deals of other replicas. So N
// replicas together allow a key at most 1 + N/16 times its limit.
type account struct {
	mu      sync.Mutex
	open    int // the sum of the last count, the units pending at that time, and created
	created int // units created since the last count
	pending int // units of creations in flight, which a count may miss
	counted time.Time
}

// charge adds a deal's units to the key's open deals, or returns RATE_LIMITED if they would
// exceed the limit. The caller MUST call done after the creation, even a failed one. A deal
// stored during a count may be counted twice until the next count.
func (s *Service) charge(ctx context.Context, p Principal, units int) (done func(), err error) {
	most, a := s.options.OpenUnits, p.account
	if most <= 0 {
		return func() {}, nil
	}
	units = min(units, most) // a key may have one open deal of any size
	a.mu.Lock()
	defer a.mu.Unlock()
	full := a.open+units > most
	if full && time.Since(a.counted) >= recountEvery || !full && a.created+units > most/recountAfter {
		_, open, err := s.store.UseKey(ctx, p.keyHash, most)
		if err != nil {
			return nil, err
		}
		a.open, a.created, a.counted = open+a.pending, 0, time.Now()
	}
	if a.open+units > most {
		return nil, problem.New(problem.RateLimited, "the open deals of this API key cost %d of its %d units, and this deal costs %d (one, and one for each %d parties and each %d KiB): wait until some have ended, or cancel those without a commitment",
			a.open, most, units, partiesPerUnit, bytesPerUnit>>10).After(int64(recountEvery / time.Second))
	}
	a.open += units
	a.created += units
	a.pending += units
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pending -= units
	}, nil
}
