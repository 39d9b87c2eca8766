//go:build crashpoints

package main

import (
	"syscall"
	"testing"

	"github.com/fairpact/fairpact/internal/translog"
)

// A server that dies at any point of an append, and is started again, has the
// entry once, under a head that proves it. The first append of a process takes
// the careful way, and one after it, here of a known entry, leaves it to appends
// of one statement.
func TestCrashPoints(t *testing.T) {
	points := []string{"log.before-commit", "log.sequenced", "log.guarded", "log.signed", "log.published"}
	for _, point := range points {
		t.Run(point, func(t *testing.T) { crashAt(t, point, false) })
		if point != "log.sequenced" { // which the known entry meets
			t.Run(point+" with the head in memory", func(t *testing.T) { crashAt(t, point, true) })
		}
	}
}

func crashAt(t *testing.T, point string, inMemory bool) {
	s := newSetup(t)
	s.env["FAIRPACT_FORK_GUARD"] = "file://" + t.TempDir() + "/guard.json"
	s.migrate(t)
	p := s.start(t)
	p.waitReady(t)
	if index, err := p.client().Append(t.Context(), entry(0), s.sign(t, entry(0)), translog.Tag{}); err != nil || index != 0 {
		t.Fatalf("index %d, %v", index, err)
	}
	_ = p.command.Process.Kill()
	p.end(t)

	p = s.start(t, "FAIRPACT_CRASH_AT="+point)
	if inMemory {
		if index, err := p.client().Append(t.Context(), entry(0), s.sign(t, entry(0)), translog.Tag{}); err != nil || index != 0 {
			t.Fatalf("the known entry: index %d, %v", index, err)
		}
	}
	if _, err := p.client().Append(t.Context(), entry(1), s.sign(t, entry(1)), translog.Tag{}); err == nil {
		t.Error("the append was answered")
	}
	p.end(t)
	if status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the server ended by itself: %v", p.err)
	}

	p = s.start(t)
	p.waitReady(t)
	client := p.client()
	for n, want := range []int64{0, 1} {
		if index, err := client.Append(t.Context(), entry(byte(n)), s.sign(t, entry(byte(n))), translog.Tag{}); err != nil || index != want {
			t.Errorf("entry %d: index %d, %v", n, index, err)
		}
	}
	for n := range 2 {
		inclusion, err := client.Inclusion(t.Context(), entry(byte(n)), translog.AnyIndex)
		if err != nil || inclusion.TreeSize != 2 {
			t.Fatalf("entry %d: %+v, %v", n, inclusion, err)
		}
		if err := inclusion.Verify(entry(byte(n))); err != nil {
			t.Error(err)
		}
	}
}
