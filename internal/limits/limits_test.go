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
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairpact/fairpact/internal/problem"
)

// held reads the body of a request through b and releases nothing.
func held(t *testing.T, b *Process, size int) (release func(), read int, err error) {
	t.Helper()
	call, r := b.Begin(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(make([]byte, size))), "", true)
	got, err := io.ReadAll(r.Body)
	return call.End, len(got), err
}

func TestBytesOfAllBodiesAreBounded(t *testing.T) {
	b := New()
	b.strangers.small, b.strangers.large = semaphore.NewWeighted(3*step), semaphore.NewWeighted(2*step)
	refused := func(size, read int) (release func()) {
		t.Helper()
		release, n, err := held(t, b, size)
		if n != read || !problem.Is(err, problem.Overloaded) {
			t.Errorf("read %d of %d bytes, %v; want %d and OVERLOADED", n, size, err, read)
		}
		return release
	}
	taken := func(size int) (release func()) {
		t.Helper()
		release, n, err := held(t, b, size)
		if n != size || err != nil {
			t.Errorf("read %d of %d bytes, %v", n, size, err)
		}
		return release
	}
	first := taken(3*step - 1)
	second := refused(2*step, step)
	third := taken(step)
	refused(1, 0)()
	second()
	second() // a second time is nothing
	fourth := taken(step)
	for _, release := range []func(){first, third, fourth} {
		release()
	}
	if !b.strangers.small.TryAcquire(3*step) || !b.strangers.large.TryAcquire(2*step) {
		t.Error("bytes stay held")
	}
}

func TestLargeBodiesTakeTurns(t *testing.T) {
	b := New()
	b.strangers.turns, b.known.turns = semaphore.NewWeighted(1), semaphore.NewWeighted(1)
	release, _, err := held(t, b, step+1)
	if err != nil {
		t.Fatal(err)
	}
	// The next one has no time to wait: it is refused, and not for ever.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	next, r := b.Begin(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "POST", "/", bytes.NewReader(make([]byte, step+1))), "", true)
	if _, err := io.ReadAll(r.Body); !problem.Is(err, problem.Overloaded) {
		t.Errorf("two large bodies at once: %v, want OVERLOADED", err)
	}
	next.End()
	party, r := b.Begin(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(make([]byte, step+1))), "", false)
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Errorf("a party waits for strangers: %v", err)
	}
	if b.known.turns.TryAcquire(1) {
		t.Error("a party's large body takes no turn")
	}
	party.End()
	small, _, err := held(t, b, step)
	if err != nil {
		t.Errorf("a small body waits for a turn: %v", err)
	}
	small()
	release()
	after, _, err := held(t, b, step+1)
	if err != nil {
		t.Errorf("the next one: %v", err)
	}
	after()
}

// What a call takes it gives back when its answer begins, and after its end it takes nothing.
func TestTurnsEnd(t *testing.T) {
	b := New()
	b.turns = semaphore.NewWeighted(1)
	call, r := b.Begin(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "", false)
	for range 2 { // the second time it has one
		if err := Turn(r.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.turns.TryAcquire(1) {
		t.Error("a turn is taken twice")
	}
	call.Written()
	call.End()
	if err := Turn(r.Context()); err != nil || !b.turns.TryAcquire(1) {
		t.Errorf("the turn stays taken, %v", err)
	}
}

// A sender that stops is cut; one that was quick is not, however long its answer takes.
func TestSlowSendersAreCut(t *testing.T) {
	b := New()
	b.stepTime = 100 * time.Millisecond
	got := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, r := b.Begin(w, r, "", true)
		defer call.End()
		_, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/long" {
			select {
			case <-r.Context().Done():
				err = r.Context().Err()
			case <-time.After(3 * b.stepTime):
			}
		}
		got <- err
	}))
	defer server.Close()

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\nhalf of it")
	if err, ok := errors.AsType[net.Error](<-got); !ok || !err.Timeout() {
		t.Errorf("a sender that stops: %v, want a timeout", err)
	}
	// Steps that each arrive in time, of a body that does not.
	b.bodyTime, b.stepTime = 300*time.Millisecond, 250*time.Millisecond
	slow, send := io.Pipe()
	go func() {
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			if _, err := send.Write(make([]byte, step/2)); err != nil {
				return
			}
		}
		send.Close()
	}()
	if answer, err := http.Post(server.URL, "", slow); err == nil {
		answer.Body.Close()
	}
	if err, ok := errors.AsType[net.Error](<-got); !ok || !err.Timeout() {
		t.Errorf("a sender that is slow on the whole: %v, want a timeout", err)
	}
	b.bodyTime, b.stepTime = bodyTime, 100*time.Millisecond
	// Its body is there with its header, however slow the machine is.
	long, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	fmt.Fprintf(long, "POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nall of it")
	if err := <-got; err != nil {
		t.Errorf("an answer that takes long: %v", err)
	}
}

// A call that waits for others holds neither a turn nor the bytes of its body.
func TestWaitHoldsNothing(t *testing.T) {
	b := New()
	b.turns, b.known.small, b.known.large = semaphore.NewWeighted(1), semaphore.NewWeighted(2*step), semaphore.NewWeighted(2*step)
	call, r := b.Begin(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(make([]byte, 2*step))), "", false)
	defer call.End()
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if err := Turn(r.Context()); err != nil {
		t.Fatal(err)
	}
	Wait(r.Context())
	if !b.turns.TryAcquire(1) || !b.known.small.TryAcquire(2*step) || !b.known.large.TryAcquire(2*step) {
		t.Error("it holds something")
	}
	b.turns.Release(1)
	if err := Turn(r.Context()); err != nil || b.turns.TryAcquire(1) {
		t.Errorf("it gets no turn to answer: %v", err)
	}
	Wait(context.Background()) // no call: nothing to let go
}
