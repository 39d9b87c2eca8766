package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

func begin(p *Process, size int, network string) (*Call, *http.Request) {
	return p.Begin(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(make([]byte, size))), network)
}

// reads begins a call with a body of `size` bytes and checks that reading stops after `read` bytes.
func reads(t *testing.T, p *Process, size, read int) (end func()) {
	t.Helper()
	call, r := begin(p, size, "")
	got, err := io.ReadAll(r.Body)
	if len(got) != read || (err == nil) != (read == size) || err != nil && !problem.Is(err, problem.Overloaded) {
		t.Errorf("read %d of %d bytes, %v; want %d, and OVERLOADED if there are more", len(got), size, err, read)
	}
	return call.End
}

func TestBytesOfAllBodiesAreBounded(t *testing.T) {
	p := New()
	p.strangers.small, p.strangers.large = semaphore.NewWeighted(3*step), semaphore.NewWeighted(2*step)
	first := reads(t, p, 3*step-1, 3*step-1)
	second := reads(t, p, 2*step, step)
	third := reads(t, p, step, step)
	reads(t, p, 1, 0)()
	second()
	second()
	fourth := reads(t, p, step, step)
	for _, end := range []func(){first, third, fourth} {
		end()
	}
	if !p.strangers.small.TryAcquire(3*step) || !p.strangers.large.TryAcquire(2*step) {
		t.Error("bytes stay counted after the end of the calls, want none")
	}
}

func TestLargeBodiesTakeTurns(t *testing.T) {
	p := New()
	p.strangers.slots, p.parties.slots = semaphore.NewWeighted(1), semaphore.NewWeighted(1)
	end := reads(t, p, step+1, step+1)
	gone, cancel := context.WithCancel(t.Context())
	cancel() // so that the second body is refused at once, instead of waiting for a slot
	next, r := p.Begin(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "POST", "/", bytes.NewReader(make([]byte, step+1))), "")
	if _, err := io.ReadAll(r.Body); !problem.Is(err, problem.Overloaded) {
		t.Errorf("two large bodies at once: %v, want OVERLOADED", err)
	}
	next.End()
	party, r := begin(p, step+1, "")
	Party(r.Context())
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Errorf("a party's body while no slot of the strangers' pool is free: %v, want no error", err)
	}
	if p.parties.slots.TryAcquire(1) {
		t.Error("a party's large body acquires no slot")
	}
	party.End()
	reads(t, p, step, step)()
	end()
	reads(t, p, step+1, step+1)()
}

// While a network sends networkBodies large bodies, its next large body waits at most slotTimeout for
// one of them to be released. Bodies of other networks do not wait. Nor do bodies of callers with
// an invite token (see Party).
func TestLargeBodiesOfANetworkAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		var calls []*Call
		read := func(network string, party bool) error {
			call, r := begin(p, step+1, network)
			if party {
				Party(r.Context())
			}
			calls = append(calls, call)
			// Stop before the EOF, because at the EOF Read waits for a slot to parse the body.
			_, err := io.ReadAll(io.LimitReader(r.Body, step+1))
			return err
		}
		for range networkBodies {
			if err := read("192.0.2.1", false); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := read("192.0.2.1", false); !problem.Is(err, problem.Overloaded) || time.Since(began) != slotTimeout {
			t.Errorf("the body over the bound: %v after %v, want OVERLOADED after %v", err, time.Since(began), slotTimeout)
		}
		if err := read("192.0.2.2", false); err != nil {
			t.Errorf("another network's body: %v, want no error", err)
		}
		if err := read("192.0.2.1", true); err != nil {
			t.Errorf("a party's body: %v, want no error", err)
		}
		waiting := make(chan error)
		go func() { waiting <- read("192.0.2.1", false) }()
		synctest.Wait()
		calls[0].ReleaseSlotAndBody()
		if err := <-waiting; err != nil {
			t.Errorf("a body that waited: %v, want no error", err)
		}
		for _, call := range calls {
			call.End()
		}
		strangers, _ := p.strangers.places.Held()
		if parties, _ := p.parties.places.Held(); strangers+parties > 0 {
			t.Errorf("%d places are counted after the end of all calls, want none", strangers+parties)
		}
	})
}

// A slow large body is refused once another large body of its network waits for one of the
// networkBodies places.
func TestSlowBodiesLoseTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		p.strangers.slots = semaphore.NewWeighted(networkBodies + 1)
		var slow []*http.Request
		send := func() *http.Request {
			call, r := begin(p, 3*step, "192.0.2.1")
			t.Cleanup(call.End)
			return r
		}
		for range networkBodies {
			r := send()
			if _, err := io.CopyN(io.Discard, r.Body, step+1); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, r)
		}
		time.Sleep(2 * slotTimeout)
		if _, err := io.CopyN(io.Discard, slow[1].Body, step); err != nil {
			t.Errorf("a slow body while none waits: %v, want no error", err)
		}
		last := send()
		done := make(chan error)
		go func() {
			_, err := io.ReadAll(last.Body)
			done <- err
		}()
		synctest.Wait()
		if _, err := io.ReadAll(slow[0].Body); !problem.Is(err, problem.Overloaded) {
			t.Errorf("a slow body while another waits: %v, want OVERLOADED", err)
		}
		callIn(slow[0].Context()).End()
		if err := <-done; err != nil {
			t.Errorf("the body that waited: %v, want no error", err)
		}
	})
}

// A body read that runs during or after Call.End must not keep bytes, a slot, or one of the
// networkBodies places of the network.
func TestReadingBesideTheEnd(t *testing.T) {
	p := New()
	for range 200 {
		call, r := begin(p, 4*step, "192.0.2.1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		call.End()
		<-done
		call.End()
	}
	for until := time.Now().Add(time.Minute); !p.strangers.slots.TryAcquire(1); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the slot is not released")
		}
	}
	if !p.strangers.small.TryAcquire(bodyBytes) || !p.strangers.large.TryAcquire(bodyBytes) {
		t.Error("bytes are not released")
	}
	if places, networks := p.strangers.places.Held(); places > 0 || networks > 0 {
		t.Errorf("%d places of the network are not released", places)
	}
}

// After a large body was parsed, the next one waits as long as the parsing took, but at
// most maxPause.
func TestLargeBodiesLeaveTimeToOthers(t *testing.T) {
	for parsing, pause := range map[time.Duration]time.Duration{30 * time.Millisecond: 30 * time.Millisecond, time.Second: maxPause} {
		synctest.Test(t, func(t *testing.T) {
			p := New()
			p.strangers.slots = semaphore.NewWeighted(1)
			end := reads(t, p, step+1, step+1)
			time.Sleep(parsing)
			end()
			began := time.Now()
			reads(t, p, step+1, step+1)()
			if waited := time.Since(began); waited != pause {
				t.Errorf("parsed in %v, then the next body waited %v, want %v", parsing, waited, pause)
			}
		})
	}
}

func TestTurnsEnd(t *testing.T) {
	p := New()
	p.slots = semaphore.NewWeighted(1)
	call, r := begin(p, 0, "")
	for range 2 {
		if err := AcquireSlot(r.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p.slots.TryAcquire(1) {
		t.Error("the call holds no slot")
	}
	call.ReleaseSlotAndBody()
	call.End()
	if err := AcquireSlot(r.Context()); err != nil || !p.slots.TryAcquire(1) {
		t.Errorf("AcquireSlot after End: %v, or the slot is not free; want no error and a free slot", err)
	}
}

func TestSlowSendersAreCut(t *testing.T) {
	p := New()
	p.stepTime = 100 * time.Millisecond
	got := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, r := p.Begin(w, r, "")
		defer call.End()
		_, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/long" {
			select {
			case <-r.Context().Done():
				err = r.Context().Err()
			case <-time.After(3 * p.stepTime):
			}
		}
		got <- err
	}))
	defer server.Close()
	send := func(request string) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, request)
	}
	timesOut := func(sender string) {
		if err, ok := errors.AsType[net.Error](<-got); !ok || !err.Timeout() {
			t.Errorf("a sender that %s: %v, want a timeout", sender, err)
		}
	}
	send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\nhalf of it")
	timesOut("stops")
	p.bodyTime, p.stepTime = 300*time.Millisecond, 250*time.Millisecond
	slow, writer := io.Pipe()
	go func() {
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			if _, err := writer.Write(make([]byte, step/2)); err != nil {
				return
			}
		}
		writer.Close()
	}()
	if answer, err := http.Post(server.URL, "", slow); err == nil {
		answer.Body.Close()
	}
	timesOut("is slow on the whole")
	p.bodyTime, p.stepTime = bodyTime, 100*time.Millisecond
	// One write, so that the body arrives within stepTime on a slow machine too.
	send("POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nall of it")
	if err := <-got; err != nil {
		t.Errorf("an answer that takes long: %v, want no error", err)
	}
}

func TestCallsThatWaitHoldNothing(t *testing.T) {
	p := New()
	p.slots, p.parties.small, p.parties.large = semaphore.NewWeighted(1), semaphore.NewWeighted(2*step), semaphore.NewWeighted(2*step)
	call, r := begin(p, 2*step, "")
	defer call.End()
	Party(r.Context())
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if err := AcquireSlot(r.Context()); err != nil {
		t.Fatal(err)
	}
	ReleaseForWait(r.Context())
	if !p.slots.TryAcquire(1) || !p.parties.small.TryAcquire(2*step) || !p.parties.large.TryAcquire(2*step) {
		t.Error("a call that waits holds a slot or bytes of its body, want none")
	}
	p.slots.Release(1)
	if err := AcquireSlot(r.Context()); err != nil || p.slots.TryAcquire(1) {
		t.Errorf("AcquireSlot after ReleaseForWait: %v, or no slot acquired; want a slot", err)
	}
	ReleaseForWait(context.Background())
}
