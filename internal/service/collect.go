package service

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// smallHeap is the size in bytes, garbage included, to which a heap may grow before a
// collection although GOGC=100 would collect earlier. With GOGC=100, collections would take a tenth of the CPU time of a process with a
// heap of tens of MiB. With a constant higher GOGC, large heaps would grow too much.
const smallHeap = 96 << 20

// collection is garbage from the start, so its finalizer runs after each collection.
type collection struct{ _ [64]byte }

// paceCollections sets GOGC for the present heap, now and after each collection: from 400
// for a small heap down to 100 for one of smallHeap/2 and more.
func paceCollections() {
	// The next collection starts at live + (live + stacks + globals) * GOGC/100.
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
