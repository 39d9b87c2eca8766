package service

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// smallHeap is the size in bytes, garbage included, to which a small heap may grow before it
// is collected. GOGC=100 would collect a small heap earlier: for a heap of tens of MiB, the
// collections would take a tenth of the process's CPU time. A higher constant GOGC would let
// large heaps grow too much.
const smallHeap = 96 << 20

// A collection is the object whose finalizer, `pace`, runs after each garbage collection: nothing
// refers to the object, and each run of `pace` sets the finalizer again.
type collection struct{ _ [64]byte }

// paceCollections sets GOGC by the size of the live heap, now and after each collection.
// GOGC is 400 for the smallest heaps, and falls to 100 for live heaps of smallHeap/2 or more.
func paceCollections() {
	// Go starts the next collection when the heap reaches
	// live + (live + stacks + globals) * GOGC/100. `pace` chooses the GOGC between 100 and 400
	// that brings this size closest to smallHeap.
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
