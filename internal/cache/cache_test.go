package cache_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/cache"
)

const limit = 64 << 10

func TestNeverOverItsLimit(t *testing.T) {
	c := cache.New[int, int](limit)
	for i := range 10_000 {
		c.Add(i, i, i%5000)
		if c.Used() > limit || c.Used() < 0 {
			t.Fatalf("%d bytes after %d values, the limit is %d", c.Used(), i+1, limit)
		}
	}
	if c.Used() < limit/2 {
		t.Errorf("only %d bytes are used", c.Used())
	}
	if v, ok := c.Get(9999); !ok || v != 9999 {
		t.Errorf("the newest value is %d, %v", v, ok)
	}
	if _, ok := c.Get(0); ok {
		t.Error("the oldest value is kept")
	}
}

// The limit is of memory and not of values: entries of no bytes cost too.
func TestValuesWithoutBytesAreBounded(t *testing.T) {
	const values = 200_000
	before := heap()
	c := cache.New[string, struct{}](limit)
	for i := range values {
		c.Add(fmt.Sprint(i), struct{}{}, 0)
	}
	if grown := heap() - before; grown > 4*limit {
		t.Errorf("%d values of no bytes hold %d bytes, the limit is %d", values, grown, limit)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestTheLeastRecentlyUsedMakesRoom(t *testing.T) {
	c := cache.New[string, int](10_000)
	for i, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		c.Add(key, i, 1000)
	}
	if _, ok := c.Get("a"); !ok {
		t.Fatal("a does not fit")
	}
	c.Add("i", 9, 1000)
	if _, ok := c.Get("a"); !ok {
		t.Error("a was used and is gone")
	}
	if _, ok := c.Get("b"); ok {
		t.Error("b was not used and is kept")
	}
}

func TestOversizedIsNotKept(t *testing.T) {
	c := cache.New[string, string](limit)
	c.Add("small", "x", 100)
	used := c.Used()
	c.Add("large", strings.Repeat("x", limit/4), limit/4)
	if _, ok := c.Get("large"); ok || c.Used() != used {
		t.Errorf("kept: %v, %d bytes used", ok, c.Used())
	}
	if _, ok := c.Get("small"); !ok {
		t.Error("it drove out another value")
	}
	c.Add("small", "now large", limit) // the old value is not what was added last
	if v, ok := c.Get("small"); ok || c.Used() != 0 {
		t.Errorf("%q is kept for a value that is not, %d bytes used", v, c.Used())
	}
}

func TestAddReplacesAndPurgeForgets(t *testing.T) {
	c := cache.New[string, int](limit)
	c.Add("a", 1, 100)
	used := c.Used()
	c.Add("a", 2, 100)
	if v, _ := c.Get("a"); v != 2 || c.Used() != used {
		t.Errorf("a is %d, %d bytes used, want %d", v, c.Used(), used)
	}
	c.Add("b", 3, 0)
	c.Purge()
	if _, ok := c.Get("b"); ok || c.Used() != 0 {
		t.Errorf("after a purge b is kept: %v, %d bytes used", ok, c.Used())
	}
}

func TestConcurrentUse(t *testing.T) {
	c := cache.New[int, int](limit)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 3000 {
				key := (g*7 + i) % 500
				switch i % 50 {
				default:
					c.Add(key, key, i%3000)
				case 1, 2, 3, 4, 5, 6, 7, 8, 9:
					if v, ok := c.Get(key); ok && v != key {
						t.Errorf("%d holds %d", key, v)
					}
				case 11:
					if used := c.Used(); used > limit || used < 0 {
						t.Errorf("%d bytes used, the limit is %d", used, limit)
					}
				}
			}
			c.Purge()
		})
	}
	group.Wait()
	c.Purge()
	if c.Used() != 0 {
		t.Errorf("%d bytes used after a purge", c.Used())
	}
}
