package forkguard

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// node forwards connections, and is silent on those that it has when it dies, as
// a machine that lost its power: nothing is closed, nothing is answered.
type node struct {
	net.Listener
	to string

	mu   sync.Mutex
	made []*forwarded // all so far
}

type forwarded struct {
	mu   sync.Mutex
	dead bool
	ends [2]net.Conn
}

func (n *node) serve() {
	for {
		from, err := n.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", n.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		f := &forwarded{ends: [2]net.Conn{from, to}}
		n.mu.Lock()
		n.made = append(n.made, f)
		n.mu.Unlock()
		go f.pump(from, to)
		go f.pump(to, from)
	}
}

func (f *forwarded) pump(from, to net.Conn) {
	buffer := make([]byte, 4096)
	for {
		size, err := from.Read(buffer)
		f.mu.Lock()
		dead := f.dead
		f.mu.Unlock()
		if err != nil {
			if !dead {
				_ = to.Close()
			}
			return
		}
		if !dead {
			_, _ = to.Write(buffer[:size])
		}
	}
}

// die silences the connections made so far.
func (n *node) die() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.made {
		f.mu.Lock()
		f.dead = true
		f.mu.Unlock()
	}
}

func (n *node) close() {
	_ = n.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.made {
		_ = f.ends[0].Close()
		_ = f.ends[1].Close()
	}
}

// An API server that dies without a word, or the node in front of it, is found
// out by pings: a new connection is made, long before TCP gives the old one up.
func TestKubernetesDeadConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"}}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := &node{Listener: listener, to: server.Listener.Addr().String()}
	defer front.close()
	go front.serve()

	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"token":  []byte("token-1"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := &kubernetes{
		url: "https://" + listener.Addr().String() + "/", name: "ns/guard",
		tokenFile: dir + "/token", caFile: dir + "/ca.crt", ping: 250 * time.Millisecond,
	}
	defer func() { _ = k.Close() }()
	if _, err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	front.die()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, 5*time.Second)
		_, err := k.Load(one)
		done()
		if err == nil {
			return
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatalf("no new connection is made: %v", err)
		}
	}
}
