package cache

// Used is how many bytes are kept.
func (c *Cache[K, V]) Used() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
