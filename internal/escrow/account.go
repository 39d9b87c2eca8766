package escrow

import (
	"context"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

// What a deal costs beside one unit.
const (
	partiesPerUnit = 100
	bytesPerUnit   = 10 << 10
)

const (
	recountEvery = 10 * time.Second // of a key that has used up its units
	recountAfter = 16               // one part in that many of the bound was created here since the count: other replicas create too
)

// account is what this process knows of one API key's open deals, in units. A
// creation is charged from memory and costs no statement: what has ended, and what
// other replicas have created, shows at the next count. N replicas together let a
// key have at most N sixteenths more than the bound.
type account struct {
	mu      sync.Mutex
	open    int // as last counted, and what was created here since
	created int // since the count
	pending int // of creations under way, which a count does not see
	counted time.Time
}

// charge refuses a deal where the key's open deals would cost more than the bound.
// settled MUST be called when the deal is made, or is not. A deal that is made while
// the key is counted may be charged twice, until the next count.
func (s *Service) charge(ctx context.Context, p Principal, units int) (settled func(), err error) {
	most, a := s.options.OpenUnits, p.account
	if most <= 0 {
		return func() {}, nil
	}
	units = min(units, most) // each key may have one deal of any size
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
		return nil, problem.New(problem.RateLimited, "the open deals of this API key cost %d of its %d units, and this deal costs %d (one, and one for each %d parties and each %d KiB): wait until some have ended, or cancel those that nobody has joined",
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
