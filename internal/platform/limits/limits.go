// Package limits bounds what one process holds and computes for all its callers together:
//   - the bytes of bodies and answers, and the time that a body takes to arrive;
//   - places: the large bodies (over 64 KiB) that one network sends at the same time;
//   - slots: the calls that parse a large body, compute for long or read much from the database
//     at the same time;
//   - the open connections.
//
// Policy bounds what one caller may use in a minute.
package limits

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	bodyBytes     = 64 << 20        // capacity of pool.small and of pool.large each, in bytes
	networkBodies = 8               // places of a network; a further large body waits after its first step
	step          = 64 << 10        // a longer body or answer is large; a large body is admitted in steps of this many bytes
	stepTime      = 5 * time.Second // longest time for each 64 KiB (step) of a body to arrive
	bodyTime      = timelimits.Body
	slotTimeout   = 5 * time.Second       // longest wait for a slot, or for a place of a network (networkBodies)
	maxPause      = 50 * time.Millisecond // longest pause between the parsing of a large body and the release of its slot
	answerBytes   = 128 << 20             // bound of all large answers together
	networkShare  = 4                     // a network may use answerBytes/networkShare
)

// Process has the bounds of one process.
type Process struct {
	parties, strangers pool
	slots              *semaphore.Weighted // half the number of cores, so that other calls find idle cores
	answers            *Shares             // bytes of large answers
	stepTime           time.Duration
	bodyTime           time.Duration
}

// pool bounds the bodies of one class of callers. Strangers (without an invite token) have a pool
// of their own, so that they cannot keep a party from revealing. An MCP call has the token in its
// body, so it counts as a stranger's.
type pool struct {
	small  *semaphore.Weighted // bytes of the first 64 KiB (step) of each body
	large  *semaphore.Weighted // bytes after the first 64 KiB; separate, so that large bodies cannot block small ones
	slots  *semaphore.Weighted // large bodies that are parsed as JSON at the same time
	places *Shares             // large bodies that one network sends at the same time
}

// New returns the bounds of one process.
func New() *Process {
	half := max(1, int64(runtime.GOMAXPROCS(0))/2)
	newPool := func() pool {
		return pool{semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(bodyBytes), semaphore.NewWeighted(half), NewShares(math.MaxInt64, networkBodies)}
	}
	return &Process{
		parties: newPool(), strangers: newPool(), slots: semaphore.NewWeighted(half),
		answers: newAnswers(answerBytes), stepTime: stepTime, bodyTime: bodyTime,
	}
}

// Call is one request and the resources that it holds.
type Call struct {
	process *Process
	network string
	body    *body // nil: the request has none

	mu sync.Mutex
	// mu guards the fields below.
	slot   *semaphore.Weighted // which slots the call holds one of; nil: none
	began  time.Time           // when the call acquired the slot
	answer int64               // bytes counted for the answer
	ended  bool
}

type callKey struct{}

func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Begin starts the call of a request from a network (see Network), and returns the request with
// a bounded body. Reading the body returns a problem.Error at a bound. The caller MUST call End.
func (p *Process) Begin(w http.ResponseWriter, r *http.Request, network string) (*Call, *http.Request) {
	c := &Call{process: p, network: network}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		c.body = &body{ReadCloser: r.Body, call: c, pool: &p.strangers, ctx: r.Context(), conn: http.NewResponseController(w), size: r.ContentLength, until: time.Now().Add(p.bodyTime), end: step}
		r.Body = c.body
	}
	return c, r
}

// Party moves the call in ctx from the strangers' pool to the parties'. Call Party before the body
// is read, and only for an invite token of the deal: anyone can get an API key.
func Party(ctx context.Context) {
	if c := callIn(ctx); c != nil && c.body != nil {
		c.body.pool = &c.process.parties
	}
}

// AcquireSlot waits for a slot for the call in ctx, or returns a problem.Error after slotTimeout.
// The call gives it back with ReleaseSlot or ReleaseForWait, at the latest when the answer begins,
// because the client may read slowly.
func AcquireSlot(ctx context.Context) error {
	c := callIn(ctx)
	if c == nil {
		return nil
	}
	return c.acquireSlot(ctx, c.process.slots)
}

// ReleaseForWait releases the slot and the body of the call in ctx before it waits for other
// parties. The body MUST have been read.
func ReleaseForWait(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.ReleaseSlotAndBody()
	}
}

// ReleaseSlot releases the slot of the call in ctx, for example before a request to another server.
func ReleaseSlot(ctx context.Context) {
	if c := callIn(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.releaseSlot()
	}
}

func (c *Call) releaseSlot() {
	slot := c.slot
	switch {
	case slot == nil:
		return
	case slot == c.process.slots:
		slot.Release(1)
	default:
		// The slot was for a large body. A pause as long as the call held the slot lets small calls
		// find an idle core.
		time.AfterFunc(min(time.Since(c.began), maxPause), func() { slot.Release(1) })
	}
	c.slot = nil
}

func (c *Call) acquireSlot(ctx context.Context, slots *semaphore.Weighted) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot != nil || c.ended {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	if slots.Acquire(waiting, 1) != nil {
		return problem.New(problem.Overloaded, "too many large requests are being answered at the moment; send the same request again in a few seconds").WithRetryAfter(2)
	}
	c.slot, c.began = slots, time.Now()
	return nil
}

// ReleaseSlotAndBody is for when the answer begins.
func (c *Call) ReleaseSlotAndBody() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseSlot()
	if c.body != nil {
		c.body.release()
	}
}

// End releases all that the call holds. After End the call can acquire no more.
func (c *Call) End() {
	c.ReleaseSlotAndBody()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.process.answers.Release(c.network, c.answer)
	c.answer = 0
}

// Answer counts the bytes of a large answer until the call in ctx ends, or returns a
// problem.Error. A call whose effect cannot be repeated first passes an estimate, because a
// refusal after the effect would lose the answer. Then Answer counts only the bytes above it.
func Answer(ctx context.Context, bytes int) error {
	c := callIn(ctx)
	if c == nil || bytes <= step {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := int64(bytes) - c.answer
	if more <= 0 || c.ended {
		return nil
	}
	switch c.process.answers.Take(c.network, c.answer, more) {
	case ErrShare:
		return problem.New(problem.Overloaded, "your network is still reading other large answers; read them to their end and send the same request again in a few seconds").WithRetryAfter(2)
	case ErrTotal:
		return problem.New(problem.Overloaded, "too many large answers are being sent at the moment; send the same request again in a few seconds").WithRetryAfter(2)
	}
	c.answer += more
	return nil
}

// Limiter counts the uses of each name, for example of `keys:192.0.2.1`.
type Limiter interface {
	// Allow counts n uses of `name`, of at most perMinute a minute. If ok is false, it counted
	// nothing, and the caller may try again after retryAfterSeconds.
	Allow(ctx context.Context, name string, perMinute, n int) (retryAfterSeconds int, ok bool)
}

// Policy limits the new API keys of each network, and the units of new deals of each API key,
// per minute. REST and MCP share these limits.
type Policy struct {
	TrustedProxies []netip.Prefix // proxies whose X-Forwarded-For is trusted
	KeysPerMinute  int            // new API keys per network; 0: no limit
	UnitsPerMinute int            // units of new deals per API key (see MayCreateDeal); 0: no limit
	Limiter        Limiter        // may be nil if both limits are 0
}

// Address returns the client's IP address. Behind a trusted proxy it is the right-most hop in
// X-Forwarded-For that is not one: a client can forge all hops further left.
func (p *Policy) Address(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.Trusts(address); i-- {
		hop, ok := parseHop(strings.TrimSpace(hops[i]))
		if !ok {
			break
		}
		address = hop.Unmap()
	}
	return address.String()
}

// MayTakeKey counts a new API key for the network of an address. It returns RATE_LIMITED
// if the network has reached the limit KeysPerMinute.
func (p *Policy) MayTakeKey(ctx context.Context, address string) error {
	wait, ok := p.allow(ctx, "keys:"+Network(address), p.KeysPerMinute, 1)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "your network has reached the limit of %d new API keys a minute: wait %d s, or use a key that you have (one key serves any number of deals)", p.KeysPerMinute, wait).WithRetryAfter(int64(wait))
}

// MayCreateDeal charges the units of a new deal to an API key, whose hash is `key`. It returns
// RATE_LIMITED if too few are left this minute. The limit is not per address, because many honest
// agents may share an address.
func (p *Policy) MayCreateDeal(ctx context.Context, key string, units int) error {
	wait, ok := p.allow(ctx, "deals:"+key, p.UnitsPerMinute, units)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "this API key may spend %d units a minute on new deals, and too few are left for this deal, which costs %d. A deal costs 1 unit, plus 1 for each full 100 parties and 1 for each full 10 KiB of labels, seat keys and params. Wait %d s, then send the same request again",
		p.UnitsPerMinute, units, wait).WithRetryAfter(int64(wait))
}

func (p *Policy) allow(ctx context.Context, name string, perMinute, n int) (wait int, ok bool) {
	if perMinute <= 0 {
		return 0, true
	}
	return p.Limiter.Allow(ctx, name, perMinute, n)
}

// parseHop also accepts an IP address with a port, because some proxies add a port.
func parseHop(text string) (netip.Addr, bool) {
	if hop, err := netip.ParseAddr(text); err == nil {
		return hop, true
	}
	hop, err := netip.ParseAddrPort(text)
	return hop.Addr(), err == nil
}

// Network returns the network that a single caller usually controls: an IPv4 address, or
// the /64 of an IPv6 address. Any other text is returned unchanged.
func Network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Is4() {
		return address
	}
	prefix, err := a.WithZone("").Prefix(64)
	if err != nil {
		return address
	}
	return prefix.String()
}

// Trusts reports whether an address is a trusted proxy.
func (p *Policy) Trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.TrustedProxies, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}
