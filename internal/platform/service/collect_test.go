package service

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestSmallHeapsAreCollectedRarely(t *testing.T) { // not parallel: all tests share the heap of the process
	paceCollections()
	goal := func(name string, atLeast, atMost uint64) {
		t.Helper()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			runtime.GC()
			metrics.Read(sample)
			if got := sample[0].Value.Uint64(); atLeast <= got && got <= atMost {
				return
			} else if time.Now().After(until) {
				t.Fatalf("%s: collected at %d bytes, want %d to %d", name, got, atLeast, atMost)
			}
		}
	}
	some := make([]byte, smallHeap/4)
	goal("a small heap", smallHeap*8/10, smallHeap*5/4)
	runtime.KeepAlive(some)
	large := make([]byte, smallHeap)
	goal("a large heap", 2*smallHeap, smallHeap*3)
	runtime.KeepAlive(large)
}
