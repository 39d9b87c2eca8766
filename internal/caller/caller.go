// Package caller bounds what one caller may take in a minute: a caller without a
// credential by its network address, and an API key by its hash. REST and MCP share it, so that
// a limit is one limit whichever way a call comes.
package caller

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/fairpact/fairpact/internal/problem"
)

// Limiter limits how often a name may do something.
type Limiter interface {
	Allow(ctx context.Context, name string, perMinute, n int) (retryAfterSeconds int, ok bool)
}

// Policy is what a deployment lets one caller take.
type Policy struct {
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	KeysPerMinute  int            // API keys for each address; 0: no limit
	UnitsPerMinute int            // of deals for each API key, see escrow.Declared; 0: no limit
	Limiter        Limiter        // may be nil where there is no limit
}

// Address is the peer, or behind trusted proxies the right-most forwarded hop
// that is not one of them: what is left of it a client can make up.
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

// MayTakeKey refuses an address that has taken its API keys of this minute.
func (p *Policy) MayTakeKey(ctx context.Context, address string) error {
	if p.KeysPerMinute <= 0 {
		return nil
	}
	wait, ok := p.Limiter.Allow(ctx, "keys:"+Network(address), p.KeysPerMinute, 1)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "at most %d keys a minute for one address; one key serves any number of deals: keep yours, or wait %d s", p.KeysPerMinute, wait).After(int64(wait))
}

// MayCreateDeal refuses an API key that has used up its units of this minute, of
// which this deal costs some. A call with a credential is charged to that and never
// to its address, which many honest agents may share.
func (p *Policy) MayCreateDeal(ctx context.Context, key string, units int) error {
	if p.UnitsPerMinute <= 0 {
		return nil
	}
	wait, ok := p.Limiter.Allow(ctx, "deals:"+key, p.UnitsPerMinute, units)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "this API key has used up its %d units of this minute, and this deal costs %d (one, and one for each 100 parties and each 10 KiB); wait %d s",
		p.UnitsPerMinute, units, wait).After(int64(wait))
}

// parseHop reads an address; some proxies add the port.
func parseHop(text string) (netip.Addr, bool) {
	if hop, err := netip.ParseAddr(text); err == nil {
		return hop, true
	}
	hop, err := netip.ParseAddrPort(text)
	return hop.Addr(), err == nil
}

// Network is what one caller can be expected to hold: an IPv4 address, or the
// /64 of an IPv6 one.
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

// Trusts reports whether an address is a proxy that speaks for many callers.
func (p *Policy) Trusts(address netip.Addr) bool {
	for _, prefix := range p.TrustedProxies {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}
