package httpapi

import (
	"net/http"
	"net/netip"
	"strings"
)

// clientAddress is the peer, or behind trusted proxies the right-most forwarded
// hop that is not one of them: what is left of it a client can make up.
func (a *API) clientAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && a.trusts(address); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		address = hop.Unmap()
	}
	return address.String()
}

func (a *API) trusts(address netip.Addr) bool {
	for _, prefix := range a.TrustedProxies {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}
