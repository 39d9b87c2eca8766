package escrow

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const limit = 64 << 10

func (c *cache[K, V]) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// An entry takes memory even if its value has 0 bytes.
func TestEmptyValuesAreBounded(t *testing.T) {
	const values = 200_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := newCache[string, struct{}](limit)
	for i := range values {
		c.Add(fmt.Sprint(i), struct{}{}, 0)
	}
	if grown := heap() - before; grown > 4*limit {
		t.Errorf("%d values of 0 bytes take %d bytes, want at most %d", values, grown, 4*limit)
	}
	runtime.KeepAlive(c)
}

func TestTheLeastRecentlyUsedIsEvicted(t *testing.T) {
	c := newCache[string, int](10_000)
	for i, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		c.Add(key, i, 1000)
	}
	if _, ok := c.Get("a"); !ok {
		t.Fatal("a is not cached, want all 8 entries in the cache")
	}
	c.Add("i", 9, 1000)
	if _, ok := c.Get("a"); !ok {
		t.Error("a is evicted, want it cached: it was used recently")
	}
	if _, ok := c.Get("b"); ok {
		t.Error("b is cached, want it evicted: it is the least recently used")
	}
}

func TestAddReplaces(t *testing.T) {
	c := newCache[string, string](limit)
	c.Add("small", "1", 100)
	used := c.bytes()
	c.Add("small", "2", 100)
	c.Add("large", strings.Repeat("x", limit/4), limit/4)
	if _, ok := c.Get("large"); ok || c.bytes() != used {
		t.Errorf("a value of a quarter of the limit: cached %v with %d bytes used, want false and %d", ok, c.bytes(), used)
	}
	if v, _ := c.Get("small"); v != "2" {
		t.Errorf("the value of small is %q, want %q, the second", v, "2")
	}
	c.Add("small", "now large", limit) // Add must remove the old value, although the new one is too large to cache
	if v, ok := c.Get("small"); ok || c.bytes() != 0 {
		t.Errorf("small is cached as %q with %d bytes used, want it removed and 0 bytes", v, c.bytes())
	}
}

func TestConcurrentUseStaysWithinTheLimit(t *testing.T) {
	c := newCache[int, int](limit)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 3000 {
				key := (g*7 + i) % 500
				if i%5 > 0 {
					c.Add(key, key, i%3000)
				} else if v, ok := c.Get(key); ok && v != key {
					t.Errorf("key %d has the value %d, want %d", key, v, key)
				}
				if used := c.bytes(); used > limit || used < 0 {
					t.Errorf("%d bytes used, want 0 to %d", used, limit)
				}
			}
		})
	}
	group.Wait()
	if c.bytes() < limit/2 {
		t.Errorf("%d bytes used, want at least half the limit of %d", c.bytes(), limit)
	}
	c.Purge()
	if _, ok := c.Get(0); ok || c.bytes() != 0 {
		t.Errorf("after Purge key 0 is cached: %v, with %d bytes used; want false and 0", ok, c.bytes())
	}
}

// The ETag of a view is made once for all who have the view, and again after each change that it shows.
func TestViewsKeepTheirTags(t *testing.T) {
	d, made := &Deal{}, 0
	tag := func(change func(*View)) string {
		v := View{Deal: d, Snapshot: &store.Snapshot{Snapshot: deal.Snapshot{Phase: deal.Committing, Commits: 1}}, State: deal.Committing}
		change(&v)
		return v.Tag(func() string { made++; return fmt.Sprint(made) })
	}
	for i, change := range []func(*View){
		func(*View) {},
		func(v *View) { v.Commits++ },
		func(v *View) { v.Reveals++ },
		func(v *View) { v.State = deal.Computed },
		func(v *View) { v.State = deal.Certified },
		func(v *View) { v.ComputedAt = new(int64(1)) },
		func(v *View) { v.RevealsClosedAt = new(int64(1)) },
		func(v *View) { v.CommitsClosedAt = new(int64(1)) },
		func(v *View) { v.CertificateID = new("c_1") },
	} {
		if first, again := tag(change), tag(change); made != i+1 || first != again || first != fmt.Sprint(made) {
			t.Errorf("change %d: tags %s and %s, made %d times", i, first, again, made)
		}
	}
}
