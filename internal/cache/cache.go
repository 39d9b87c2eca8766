// Package cache keeps what never changes, bounded in bytes. Whoever adds a value
// says how many bytes it holds; the least recently used ones make room.
package cache

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// overhead is about what an entry costs beside its value: list and map nodes.
const overhead = 200 // bytes

// Cache is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit int

	mu sync.Mutex
	// used is guarded by mu, and is the sum of the sizes of what entries holds.
	used    int
	entries *simplelru.LRU[K, sized[V]]
}

type sized[V any] struct {
	value V
	bytes int
}

// New makes a cache of at most limit bytes.
func New[K comparable, V any](limit int) *Cache[K, V] {
	c := &Cache[K, V]{limit: limit}
	c.entries, _ = simplelru.NewLRU(1<<31-1, func(_ K, v sized[V]) { c.used -= v.bytes }) // fails on sizes below 1 only
	return c
}

// Get returns the value of key, if it is kept.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.entries.Get(key)
	return found.value, ok
}

// Add keeps a value that holds that many bytes. One that alone is over an eighth
// of the limit is not kept: it would drive out all others.
func (c *Cache[K, V]) Add(key K, value V, bytes int) {
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

// Purge forgets everything.
func (c *Cache[K, V]) Purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Purge()
}
