package escrow

import (
	"context"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	// Declared.Units: one, plus one for each full 100 parties and each full 10 KiB of labels, seat keys
	// and params.
	partiesPerUnit = 100
	bytesPerUnit   = 10 << 10

	// While an API key is at its limit, this process counts the key's open deals in the database
	// at most once per recountEvery. Below the limit, it counts again after it has created deals
	// of about limit/recountAfter units, because other replicas create deals too.
	recountEvery = 10 * time.Second
	recountAfter = 16
)

// account holds what this process knows about the units of one API key's open deals. Between two
// counts in the database it sees neither deals that end nor deals that other replicas create. So N
// replicas together allow a key at most 1 + N/recountAfter times the limit.
type account struct {
	mu      sync.Mutex
	open    int // units of open deals: the last count in the database, plus creations in flight then, plus creations since
	created int // units of the deals created since the last count
	pending int // units of creations in flight: a count in the database may miss their deals
	counted time.Time
}

// charge adds a new deal's units to those of the API key's open deals, or returns RATE_LIMITED. The
// caller MUST call done after the creation of the deal, even if it failed. A deal that is stored
// during a count in the database may count twice until the next count.
func (s *Service) charge(ctx context.Context, p Principal, units int) (done func(), err error) {
	most, a := s.options.OpenUnits, p.account
	if most <= 0 {
		return func() {}, nil
	}
	units = min(units, most) // so that an API key without open deals can create one deal of any size
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
		return nil, problem.New(problem.RateLimited, "the open deals of this API key cost %d of at most %d units, and this deal costs %d (one unit, plus one for each %d parties and one for each %d KiB of labels, seat keys and params): wait until open deals end, or cancel open deals in which no other party has committed",
			a.open, most, units, partiesPerUnit, bytesPerUnit>>10).WithRetryAfter(int64(recountEvery / time.Second))
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
