package escrow

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// overhead is the approximate size, in bytes, of the list and map nodes of an entry.
const overhead = 200

// cache holds immutable values, at most `limit` bytes of them. It evicts the least recently used.
// It is safe for concurrent use.
type cache[K comparable, V any] struct {
	limit int

	mu      sync.Mutex // guards the fields below
	used    int        // bytes of all entries
	entries *simplelru.LRU[K, sized[V]]
}

type sized[V any] struct {
	value V
	bytes int
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	c := &cache[K, V]{limit: limit}
	c.entries, _ = simplelru.NewLRU(1<<31-1, func(_ K, v sized[V]) { c.used -= v.bytes }) // NewLRU fails only for sizes below 1
	return c
}

func (c *cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.entries.Get(key)
	return found.value, ok
}

// Add replaces the value of `key`. If the new value takes more than an eighth of the limit, Add only
// removes the old one, because the new value would evict too many others.
func (c *cache[K, V]) Add(key K, value V, bytes int) {
	bytes += overhead
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	if bytes > c.limit/8 {
		return
	}
	c.entries.Add(key, sized[V]{value, bytes})
	c.used += bytes
	for c.used > c.limit {
		c.entries.RemoveOldest()
	}
}

func (c *cache[K, V]) Purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Purge()
}
