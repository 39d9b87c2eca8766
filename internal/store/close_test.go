package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/store"
)

// frozen returns the URL of the database behind a proxy, which passes on no
// answer once freeze is called.
func frozen(t *testing.T, database string) (through string, freeze func()) {
	t.Helper()
	address, err := url.Parse(database)
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
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

// A process that has drained stops at once, whatever the database does about
// calls that nobody waits for any more.
func TestCloseDoesNotWaitForTheDatabase(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, nil)
	through, freeze := frozen(t, f.url)
	s, err := store.Open(t.Context(), through, 0)
	check(t, err)
	freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var group sync.WaitGroup
	for what, call := range calls(s, d.DealID) { // each kind of statement is under way
		group.Go(func() { unavailable(t, what, call(ctx)) })
	}
	group.Wait()
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > 18*time.Second { // the statements under way would last 20 s
		t.Errorf("a stop takes %s", took)
	}
}
