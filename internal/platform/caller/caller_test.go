package caller

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

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

func (c *counter) Allow(context.Context, string, int, time.Duration, int) (int, bool) {
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
		"192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1::/48", "2001:db8:1:ffff::1%eth0": "2001:db8:1::/48", "64:ff9b::c000:207": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "not an address": "not an address",
	} {
		if got := Network(address); got != want {
			t.Errorf("Network(%q): got %s, want %s", address, got, want)
		}
	}
}

// quotas counts each name against a limit of its own.
type quotas struct {
	used map[string]int
	per  time.Duration
}

func (q *quotas) Allow(_ context.Context, name string, most int, per time.Duration, n int) (int, bool) {
	q.per = per
	if q.used[name]+n > most {
		return 60, false
	}
	q.used[name] += n
	return 0, true
}

func TestStorageIsLimitedPerKeyAndPerNetwork(t *testing.T) {
	q := &quotas{used: map[string]int{}}
	p := &Policy{KeyMiB: 1, NetworkMiB: 2, Limiter: q}
	const half = 512 << 10
	for i, c := range []struct {
		key, address string
		ok           bool
	}{
		{"a", "2001:db8::1", true}, {"a", "2001:db8::2", true}, {"a", "192.0.2.1", false}, // the key's MiB is spent
		{"b", "2001:db8::3", true}, {"c", "2001:db8::4", true}, {"d", "2001:db8::5", false}, // that of the network is, too
		{"d", "192.0.2.1", true},
	} {
		err := p.MayStore(t.Context(), c.key, c.address, half)
		if (err == nil) != c.ok || err != nil && (!problem.Is(err, problem.RateLimited) || problem.From(err).RetryAfter != 60) {
			t.Errorf("deal %d of key %s at %s: %v, want success: %v", i, c.key, c.address, err, c.ok)
		}
	}
	if q.per != 24*time.Hour {
		t.Errorf("the limit is for %v, want a day", q.per)
	}
	if err := (&Policy{}).MayStore(t.Context(), "a", "192.0.2.7", 1<<40); err != nil {
		t.Errorf("without limits: %v, want no error", err)
	}
}
