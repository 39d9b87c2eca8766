package escrow

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// contradictedFor is how long a process leaves a certificate alone that the log
// refused because it has another one of the deal. It never takes this one; the
// next try only finds out whether somebody else is still at it.
const contradictedFor = time.Hour

// contradictions are the deals with such a certificate. They are in memory alone:
// a process that starts tries each of them once.
type contradictions struct {
	mu    sync.Mutex
	until map[string]contradiction // by deal
}

type contradiction struct {
	certID string
	until  time.Time
	err    error
}

func (c *contradictions) add(dealID, certID string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = make(map[string]contradiction)
	}
	c.until[dealID] = contradiction{certID, time.Now().Add(contradictedFor), err}
}

// of returns why the log refused the certificate, or nil.
func (c *contradictions) of(dealID, certID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.until[dealID]; ok && known.certID == certID && time.Now().Before(known.until) {
		return known.err
	}
	return nil
}

// deals returns the deals to leave alone, and forgets those whose time is over.
func (c *contradictions) deals() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.until, func(_ string, known contradiction) bool { return !now.Before(known.until) })
	return slices.Collect(maps.Keys(c.until))
}
