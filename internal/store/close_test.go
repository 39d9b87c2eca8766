package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// frozen is the database behind a proxy that passes on no answer once it is frozen.
func frozen(t *testing.T, database string) (through string, freeze func()) {
	t.Helper()
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := address.Host
	address.Host = listener.Addr().String()
	var passing sync.RWMutex
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				return
			}
			go func() { _, _ = io.Copy(conn, client); conn.Close() }()
			go func() {
				defer client.Close()
				for buffer := make([]byte, 4096); ; {
					n, err := conn.Read(buffer)
					passing.RLock()
					_, _ = client.Write(buffer[:n])
					passing.RUnlock()
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	freeze = sync.OnceFunc(func() {
		passing.Lock()
		t.Cleanup(passing.Unlock)
	})
	t.Cleanup(func() { listener.Close() })
	return address.String(), freeze
}

// A process that has drained stops at once, whatever the database does about an
// insert that nobody waits for any more.
func TestCloseWaitsForNoAnswer(t *testing.T) {
	b := newBench(t)
	d := b.created(t, nil)
	through, freeze := frozen(t, b.url)
	s, err := store.Open(t.Context(), through, 0)
	if err != nil {
		t.Fatal(err)
	}
	freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Commit(ctx, d.DealID, 0, [32]byte{}, nil); !problem.Is(err, problem.Unavailable) {
		t.Fatalf("a database that does not answer: %v", err)
	}
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("a stop takes %s", took)
	}
}
