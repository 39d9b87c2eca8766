package localstack

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func fakeBin(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{"fairpactctl": "exit 0", LogServer: "echo no luck today\nexit 3"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func TestStateStays(t *testing.T) {
	dir := t.TempDir()
	var chain, secret string
	for range 2 {
		s, err := Start(t.Context(), Options{Bin: fakeBin(t), Dir: dir, Replicas: map[string]int{DealAPI: 0, LogServer: 0, DeadlineWorker: 0}})
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join(dir, "server-secret"))
		if err != nil || len(strings.TrimSpace(string(have))) != 64 {
			t.Fatalf("server-secret holds %d bytes (error %v), want 64 hex digits", len(have), err)
		}
		if chain != "" && (s.Chain().Hash != chain || string(have) != secret) {
			t.Errorf("the second start has the beacon chain %s (first: %s) and the same secret: %t, want both unchanged", s.Chain().Hash, chain, string(have) == secret)
		}
		chain, secret = s.Chain().Hash, string(have)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), Options{Bin: fakeBin(t), Port: port})
	if taken := (*PortTakenError)(nil); !errors.As(err, &taken) || taken.Port != port {
		t.Errorf("Start on the taken port %d: got %v, want a PortTakenError", port, err)
	}
}

func TestBinaryThatEndsAtItsStart(t *testing.T) {
	_, err := Start(t.Context(), Options{Bin: fakeBin(t)})
	if err == nil || !strings.Contains(err.Error(), "no luck today") || !strings.Contains(err.Error(), LogServer) {
		t.Errorf("Start with a log-server that fails: got %v, want an error with log-server and its output", err)
	}
}
