package service

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// smallHeap is the size, garbage included, to which a small heap may grow. GOGC=100 would collect
// a heap of tens of MiB so often that it takes a tenth of the CPU time. A higher constant GOGC
// would let large heaps grow too much.
const smallHeap = 96 << 20

// collection is garbage at once. So its finalizer runs after each garbage collection.
type collection struct{ _ [64]byte }

// paceCollections sets GOGC now and after each collection: from 400 for the smallest heaps down
// to 100 for live heaps of smallHeap/2 or more.
func paceCollections() {
	// The next collection starts at live + (live + stacks + globals) * GOGC/100, which is to be
	// close to smallHeap.
	sizes := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	var pace func(*collection)
	pace = func(c *collection) {
		metrics.Read(sizes)
		live, scanned := int64(sizes[0].Value.Uint64()), int64(1)
		for _, size := range sizes {
			scanned += int64(size.Value.Uint64())
		}
		debug.SetGCPercent(int(min(400, max(100, 100*(smallHeap-live)/scanned))))
		runtime.SetFinalizer(c, pace)
	}
	pace(new(collection))
}
