package service

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// smallHeap is the heap size in bytes below which no garbage collection starts. A larger
// heap is collected when it has doubled. With GOGC=100, collections would take a tenth of
// the CPU time of a process with a heap of tens of MiB. A constant higher GOGC would let
// large heaps grow too much.
const smallHeap = 128 << 20

// collection is garbage from the start, so its finalizer runs after each collection.
type collection struct{ _ [64]byte }

// paceCollections sets GOGC for the present heap now and after each collection.
func paceCollections() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var pace func(*collection)
	pace = func(c *collection) {
		metrics.Read(live)
		// The runtime's minimum heap target is 4 MiB at GOGC=100 and grows with GOGC.
		heap := max(live[0].Value.Uint64(), 4<<20)
		debug.SetGCPercent(max(100, int(100*smallHeap/heap)-100))
		runtime.SetFinalizer(c, pace)
	}
	pace(new(collection))
}
