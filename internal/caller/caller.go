// Package caller tells callers without a credential apart, by their network
// address, and bounds what one of them may ask. REST and MCP share it, so that
// a limit is one limit whichever way a call comes.
package caller

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/fairpact/fairpact/internal/problem"
)

// Limiter limits how often a name may do something; it lets through where it
// does not know.
type Limiter interface {
	Allow(ctx context.Context, name string, perMinute int) (retryAfterSeconds int, ok bool)
}

// Policy is how a deployment sees the callers that have no credential.
type Policy struct {
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	KeysPerMinute  int            // API keys for each address; 0: no limit
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
	for i := len(hops) - 1; i >= 0 && p.trusts(address); i-- {
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
	wait, ok := p.Limiter.Allow(ctx, "keys:"+network(address), p.KeysPerMinute)
	if ok {
		return nil
	}
	return problem.New(problem.RateLimited, "at most %d keys a minute for one address; one key serves any number of deals: keep yours, or wait %d s", p.KeysPerMinute, wait).After(int64(wait))
}

// parseHop reads an address; some proxies add the port.
func parseHop(text string) (netip.Addr, bool) {
	if hop, err := netip.ParseAddr(text); err == nil {
		return hop, true
	}
	hop, err := netip.ParseAddrPort(text)
	return hop.Addr(), err == nil
}

// network is what one caller can be expected to hold: an IPv4 address, or the
// /64 of an IPv6 one.
func network(address string) string {
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

func (p *Policy) trusts(address netip.Addr) bool {
	for _, prefix := range p.TrustedProxies {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}
