//go:build crashpoints

package main

import (
	"syscall"
	"testing"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/translog"
)

// A server that is killed at any point of an append has the entry once after its restart,
// under a head that proves it. The first append of a process is under the lock. Later ones
// are one statement, so a known entry is sent first for those cases.
func TestCrashDuringAnAppend(t *testing.T) {
	points := []string{"log.before-commit", "log.sequenced", "log.guarded", "log.signed", "log.published"}
	for _, point := range points {
		t.Run(point, func(t *testing.T) { crashAt(t, point, false) })
		if point != "log.sequenced" { // the known entry would reach that point
			t.Run(point+" with the head in memory", func(t *testing.T) { crashAt(t, point, true) })
		}
	}
}

func crashAt(t *testing.T, point string, inMemory bool) {
	s := newSetup(t)
	s.env["FAIRPACT_FORK_GUARD"] = "file://" + t.TempDir() + "/guard.json"
	s.migrate(t)
	p := s.startReady(t)
	if index, err := s.append(t, p, entry(0)); err != nil || index != 0 {
		t.Fatalf("index %d, %v", index, err)
	}
	_ = p.command.Process.Kill()
	p.end(t)

	p = s.start(t, "FAIRPACT_CRASH_AT="+point)
	if inMemory {
		if index, err := s.append(t, p, entry(0)); err != nil || index != 0 {
			t.Fatalf("the known entry: index %d, %v", index, err)
		}
	}
	if _, err := s.append(t, p, entry(1)); err == nil {
		t.Error("the append was answered")
	}
	p.end(t)
	if status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the server was not killed: %v", p.err)
	}

	p = s.startReady(t)
	for n := range int64(2) {
		if index, err := s.append(t, p, entry(byte(n))); err != nil || index != n {
			t.Errorf("entry %d: index %d, %v", n, index, err)
		}
	}
	for n := range 2 {
		in, err := p.client().Inclusion(t.Context(), entry(byte(n)), translog.AnyIndex)
		if err != nil || in.TreeSize != 2 {
			t.Fatalf("entry %d: %+v, %v", n, in, err)
		}
		proof := certificate.LogProof{TreeSize: in.TreeSize, LeafIndex: in.LeafIndex, InclusionPath: in.Path}
		check(t, certificate.VerifyInclusion(entry(byte(n)), proof, in.RootHash))
	}
}
