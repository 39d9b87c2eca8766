package service

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

func TestNameOfAProcess(t *testing.T) {
	t.Parallel()
	for _, secrets := range []string{"0a1b2c3d", ""} {
		name := ApplicationName("deadline-worker", "abcdef012345", secrets)
		p, ok := ParseApplicationName(name)
		if !ok || len(name) > maxName || p.Binary != "deadline-worker" || p.KeySet != "abcdef012345" || p.Secrets != secrets || p.Host == "" || strings.Contains(p.Host, "/") {
			t.Errorf("the name %q is parsed as %+v, want the values it was made from", name, p)
		}
	}
	for _, other := range []string{"", "psql", "fairpact/x", "fairpact", "fairpact/deal-api/0a1b2c3d/host.7"} {
		if _, ok := ParseApplicationName(other); ok {
			t.Errorf("ParseApplicationName(%q) reports a process, want none", other)
		}
	}
}

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
