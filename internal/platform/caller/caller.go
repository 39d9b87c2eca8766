// Package caller says who calls, and bounds what one caller may use in a minute and in a day.
package caller

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Limiter counts the uses of each name, for example of `keys:192.0.2.1`.
type Limiter interface {
	// Allow counts n uses of `name`, of at most `most` in the period `per`. If ok is false, it counted
	// nothing, and the caller may try again after retryAfterSeconds.
	Allow(ctx context.Context, name string, most int, per time.Duration, n int) (retryAfterSeconds int, ok bool)
}

// Policy limits the new API keys of each network and the units of new deals of each API key per minute,
// and the storage of the new deals of both per day. REST and MCP share these limits.
type Policy struct {
	TrustedProxies []netip.Prefix // proxies whose X-Forwarded-For is trusted
	KeysPerMinute  int            // new API keys per network; 0: no limit
	UnitsPerMinute int            // units of new deals per API key (see MayCreateDeal); 0: no limit
	KeyMiB         int            // storage of new deals per API key and day; 0: no limit
	NetworkMiB     int            // storage of new deals per network and day; 0: no limit
	Limiter        Limiter        // may be nil if all limits are 0
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
	wait, ok := p.allow(ctx, "keys:"+Network(address), p.KeysPerMinute, time.Minute, 1)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "your network has reached the limit of %d new API keys a minute: wait %d s, or use a key that you have (one key serves any number of deals)", p.KeysPerMinute, wait).WithRetryAfter(int64(wait))
}

// MayCreateDeal charges the units of a new deal to an API key, whose hash is `key`. It returns
// RATE_LIMITED if too few are left this minute. The limit is not per address, because many honest
// agents may share an address.
func (p *Policy) MayCreateDeal(ctx context.Context, key string, units int) error {
	wait, ok := p.allow(ctx, "deals:"+key, p.UnitsPerMinute, time.Minute, units)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "this API key may spend %d units a minute on new deals, and too few are left for this deal, which costs %d. A deal costs 1 unit, plus 1 for each full 100 parties and 1 for each full 10 KiB of labels, seat keys, params, title and message. Wait %d s, then send the same request again",
		p.UnitsPerMinute, units, wait).WithRetryAfter(int64(wait))
}

// MayStore charges the bytes that a new deal can store at most to its API key and to the network of an
// address. It returns RATE_LIMITED if either has too few left today. They come back evenly over a day,
// whether the deal ends or not, because an ended deal keeps what it stores.
func (p *Policy) MayStore(ctx context.Context, key, address string, bytes int) error {
	n := (bytes + 1<<10 - 1) >> 10 // KiB, so that a limit fits into an int of Redis
	for _, of := range []struct {
		name, what string
		most       int
	}{
		{"stored:" + key, "this API key", p.KeyMiB},
		{"stored:" + Network(address), "your network", p.NetworkMiB},
	} {
		if wait, ok := p.allow(ctx, of.name, of.most<<10, 24*time.Hour, n); !ok {
			return problem.New(problem.RateLimited, "%s may reserve %d MiB of storage a day for new deals, and too little is left for this deal, which reserves %d KiB: a deal reserves what its params, title, message, labels, seat keys, seals, inputs and result can take at most. Wait %d s, then send the same request again. Deals that exist are not affected",
				of.what, of.most, n, wait).WithRetryAfter(int64(wait))
		}
	}
	return nil
}

func (p *Policy) allow(ctx context.Context, name string, most int, per time.Duration, n int) (wait int, ok bool) {
	if most <= 0 {
		return 0, true
	}
	return p.Limiter.Allow(ctx, name, most, per, n)
}

// parseHop also accepts an IP address with a port, because some proxies add a port.
func parseHop(text string) (netip.Addr, bool) {
	if hop, err := netip.ParseAddr(text); err == nil {
		return hop, true
	}
	hop, err := netip.ParseAddrPort(text)
	return hop.Addr(), err == nil
}

// nat64 holds the IPv4 addresses of clients that a translator forwards over IPv6 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Network returns the largest network that a single caller easily gets: an IPv4 address, or the /48 of an IPv6
// address (RFC 6177: a site has between a /64 and a /48; tunnels give a /48 to everyone). Any other text is
// returned unchanged.
func Network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if all := a.As16(); nat64.Contains(a) {
		a = netip.AddrFrom4([4]byte(all[12:]))
	}
	if a = a.WithZone("").Unmap(); a.Is4() {
		return a.String()
	}
	prefix, _ := a.Prefix(48) // fails only for an IPv4 address
	return prefix.String()
}

// Trusts reports whether an address is a trusted proxy.
func (p *Policy) Trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.TrustedProxies, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}
