package limits

import (
	"context"
	"net/http"
	"net/netip"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestAddress(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, c := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"a peer that is not a trusted proxy":              {"192.0.2.7:1", []string{"198.51.100.1"}, "192.0.2.7"},
		"nothing forwarded":                               {"10.1.1.1:1", nil, "10.1.1.1"},
		"the hop that the proxy saw":                      {"10.1.1.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"hops left of it are ignored":                     {"10.1.1.1:1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		"a chain of proxies":                              {"[::1]:1", []string{"198.51.100.1, 10.2.2.2", "10.3.3.3"}, "198.51.100.1"},
		"a hop with its port":                             {"10.1.1.1:1", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		"an unreadable hop ends the search":               {"10.1.1.1:1", []string{"198.51.100.1, nonsense"}, "10.1.1.1"},
		"an IPv4 address in IPv6 form is the same caller": {"[::ffff:192.0.2.7]:1", nil, "192.0.2.7"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.forwarded}}
			if got := (&Policy{TrustedProxies: proxies}).Address(r); got != c.want {
				t.Errorf("peer %s with X-Forwarded-For %q: got %s, want %s", c.peer, c.forwarded, got, c.want)
			}
		})
	}
}

type counter struct{ left int }

func (c *counter) Allow(context.Context, string, int, int) (int, bool) {
	c.left--
	return 7, c.left >= 0
}

func TestKeysOfOneAddressAreLimited(t *testing.T) {
	p := &Policy{KeysPerMinute: 2, Limiter: &counter{left: 2}}
	for range 2 {
		if err := p.MayTakeKey(t.Context(), "192.0.2.7"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.MayTakeKey(t.Context(), "192.0.2.7"); !problem.Is(err, problem.RateLimited) || problem.From(err).RetryAfter != 7 {
		t.Errorf("the third key in a minute: got %v, want RATE_LIMITED with retry after 7", err)
	}
	if err := (&Policy{}).MayTakeKey(t.Context(), "192.0.2.7"); err != nil {
		t.Errorf("a key without a limit: got %v, want no error", err)
	}
}

func TestNetworkOfAnIPv6AddressIsItsPrefix(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "not an address": "not an address",
	} {
		if got := Network(address); got != want {
			t.Errorf("Network(%q): got %s, want %s", address, got, want)
		}
	}
}
