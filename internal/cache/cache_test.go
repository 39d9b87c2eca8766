package cache

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const limit = 64 << 10

func (c *Cache[K, V]) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// Entries of no bytes take memory too.
func TestEmptyValuesAreBounded(t *testing.T) {
	const values = 200_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := New[string, struct{}](limit)
	for i := range values {
		c.Add(fmt.Sprint(i), struct{}{}, 0)
	}
	if grown := heap() - before; grown > 4*limit {
		t.Errorf("%d values of no bytes take %d bytes, the limit is %d", values, grown, limit)
	}
	runtime.KeepAlive(c)
}

func TestTheLeastRecentlyUsedIsEvicted(t *testing.T) {
	c := New[string, int](10_000)
	for i, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		c.Add(key, i, 1000)
	}
	if _, ok := c.Get("a"); !ok {
		t.Fatal("a does not fit")
	}
	c.Add("i", 9, 1000)
	if _, ok := c.Get("a"); !ok {
		t.Error("a was used and is evicted")
	}
	if _, ok := c.Get("b"); ok {
		t.Error("b was not used and is still cached")
	}
}

func TestAddReplaces(t *testing.T) {
	c := New[string, string](limit)
	c.Add("small", "1", 100)
	used := c.bytes()
	c.Add("small", "2", 100)
	c.Add("large", strings.Repeat("x", limit/4), limit/4)
	if _, ok := c.Get("large"); ok || c.bytes() != used {
		t.Errorf("a large value is cached: %v, %d bytes used, want %d", ok, c.bytes(), used)
	}
	if v, _ := c.Get("small"); v != "2" {
		t.Errorf("the value is %q, want the second", v)
	}
	c.Add("small", "now large", limit) // must not leave the old value
	if v, ok := c.Get("small"); ok || c.bytes() != 0 {
		t.Errorf("%q is cached, %d bytes used", v, c.bytes())
	}
}

func TestConcurrentUseStaysWithinTheLimit(t *testing.T) {
	c := New[int, int](limit)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 3000 {
				key := (g*7 + i) % 500
				if i%5 > 0 {
					c.Add(key, key, i%3000)
				} else if v, ok := c.Get(key); ok && v != key {
					t.Errorf("key %d has the value %d", key, v)
				}
				if used := c.bytes(); used > limit || used < 0 {
					t.Errorf("%d bytes used, the limit is %d", used, limit)
				}
			}
		})
	}
	group.Wait()
	if c.bytes() < limit/2 {
		t.Errorf("only %d bytes are used", c.bytes())
	}
	c.Purge()
	if _, ok := c.Get(0); ok || c.bytes() != 0 {
		t.Errorf("%d bytes used after Purge", c.bytes())
	}
}
