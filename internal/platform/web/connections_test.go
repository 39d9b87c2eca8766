package web

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// serve serves a handler with at most `most` connections.
func serve(t *testing.T, most int, handler http.HandlerFunc) (address string, open *budget.Budget) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	l := NewListener(inner, server, most, nil, func(c net.Conn) { _ = Refuse(c, problem.New(problem.Overloaded, "full")) })
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return inner.Addr().String(), l.open
}

// dial connects from 127.0.0.<from> and sends a text.
func dial(t *testing.T, address string, from byte, text string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

func held(t *testing.T, b *budget.Budget, want int64) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		n := b.Held()
		if n == want {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d are held, want %d", n, want)
		}
	}
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

func status(c net.Conn) int {
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// At the bound, a new connection replaces one that waits for its client: the oldest one of the network
// that has the most. Those in use stay.
func TestConnectionsAreReplaced(t *testing.T) {
	busy, end := make(chan struct{}), make(chan struct{})
	address, open := serve(t, 20, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/busy":
			busy <- struct{}{}
			<-end
		case "/body":
			_, err := ReadAll(w, r, 1<<20)
			if err != nil {
				Error(w, err)
			}
		}
	})
	using := dial(t, address, 2, "GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
	<-busy
	other := dial(t, address, 3, get)
	if got := status(other); got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	var waiting []net.Conn
	for _, text := range []string{"", "GET / HT", get, "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"} {
		for range 4 {
			c := dial(t, address, 2, text)
			if text == get && status(c) != 200 {
				t.Fatal("no answer")
			}
			waiting = append(waiting, c)
		}
		time.Sleep(50 * time.Millisecond) // until the server waits
	}
	held(t, open, 11) // half of the connections, and that of another network
	for i := range 17 {
		if got := status(dial(t, address, byte(10+i), get)); got != 200 {
			t.Errorf("connection %d of another network at the bound: status %d, want 200", i, got)
		}
	}
	for i, c := range waiting[:8] {
		if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection %d of the largest network: %v, want it closed", i, err)
		}
	}
	if _, err := io.WriteString(other, get); err != nil || status(other) != 200 {
		t.Errorf("an idle connection of a small network was closed: %v", err)
	}
	close(end)
	if got := status(using); got != 200 {
		t.Errorf("a connection in use: status %d, want 200", got)
	}
}

func TestConnectionsAreRefused(t *testing.T) {
	busy, end := make(chan struct{}, 4), make(chan struct{})
	address, open := serve(t, 2, func(http.ResponseWriter, *http.Request) {
		busy <- struct{}{}
		<-end
	})
	for i := range 2 {
		dial(t, address, byte(2+i), get)
		<-busy
	}
	if got := status(dial(t, address, 4, "")); got != 503 {
		t.Errorf("status %d while all connections are in use, want 503", got)
	}
	close(end)
	held(t, open, 2)
	if got := status(dial(t, address, 4, get)); got != 200 && got != 503 {
		t.Errorf("status %d", got)
	}
}

func process(t *testing.T) *budget.Process {
	t.Helper()
	p, err := budget.NewProcess(100)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// An answer that the client does not read keeps its ticket and its connection until the client has taken it.
func TestUnreadAnswersAreCounted(t *testing.T) {
	p := process(t)
	writing := make(chan struct{})
	address, open := serve(t, 10, func(w http.ResponseWriter, r *http.Request) {
		ctx, call := p.Begin(r.Context(), "192.0.2.1")
		defer Serves(r.WithContext(ctx), call)()
		w.Header().Set("Content-Length", fmt.Sprint(100<<10))
		close(writing)
		_, _ = w.Write(make([]byte, 100<<10)) // less than the kernel keeps
	})
	c := dialSmall(t, address, 2, get)
	<-writing
	time.Sleep(3 * pollUnsent)
	if _, n := p.Held(); n < 100<<10 {
		t.Errorf("%d bytes are held for an unread answer", n)
	}
	held(t, open, 1)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, answer.Body); n != 100<<10 || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, n := p.Held(); n == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("bytes are held after the client has read all")
		}
	}
	c.Close()
	held(t, open, 0)
}

// Calls that wait for other parties do not fill a port, also if each has another request behind it.
func TestWaitingCallsMakeRoom(t *testing.T) {
	p := process(t)
	waits, ended := make(chan struct{}, 9), make(chan error, 9)
	address, open := serve(t, 8, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			return
		}
		ctx, call := p.Begin(r.Context(), "192.0.2.1")
		defer Serves(r.WithContext(ctx), call)()
		if err := call.Hold(ctx, budget.SmallCall); err != nil {
			t.Error(err)
		}
		woken := make(chan struct{})
		resume := call.Wait(0, sync.OnceFunc(func() { close(woken) }))
		waits <- struct{}{}
		<-woken
		ended <- resume(ctx)
	})
	for _, from := range []byte{2, 2, 2, 3, 3, 3, 4, 5} {
		dial(t, address, from, strings.Repeat("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n", 2))
		<-waits
	}
	held(t, open, 8)
	for n := range byte(2) {
		if got := status(dial(t, address, 9+n, get)); got != 200 {
			t.Fatalf("new connection %d: status %d, want 200", n, got)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("the wait ended with %v", err)
	}
}

// A connection whose client does not take the answer makes room for a new one, also once the server has closed it: then
// it counts until the client has taken the answer.
func TestClosingConnectionsMakeRoom(t *testing.T) {
	for _, n := range []int{12 << 10, 100 << 10} { // the server closes after the first, and not before the client has taken the second
		t.Run(fmt.Sprint(n, " bytes"), func(t *testing.T) {
			const most = 4
			answering := make(chan struct{}, most)
			address, open := serve(t, most, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/large" {
					w.Header().Set("Connection", "close")
					answering <- struct{}{}
					_, _ = w.Write(make([]byte, n))
				}
			})
			var clients []net.Conn
			for i := range most {
				clients = append(clients, dialSmall(t, address, byte(10+i), "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"))
				<-answering
			}
			time.Sleep(3 * pollUnsent) // until the server has closed them, if it does
			held(t, open, most)
			for until := time.Now().Add(10 * time.Second); status(dial(t, address, 2, get)) != 200; {
				if time.Now().After(until) {
					t.Fatal("a new client is refused beside closing connections")
				}
			}
			if n <= freeUnsent {
				for _, c := range clients[1:] {
					if got, err := io.ReadAll(c); err != nil || len(got) < n {
						t.Errorf("a client that takes its answer late: %d of %d bytes, %v", len(got), n, err)
					}
				}
			}
		})
	}
}

// dialSmall sends a text on a connection whose kernel takes few bytes for it.
func dialSmall(t *testing.T, address string, from byte, text string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// Clients that take an answer, or send a body, in small steps do not keep the memory that others wait for.
func TestSlowClientsGiveWay(t *testing.T) {
	for _, body := range []bool{false, true} {
		t.Run(fmt.Sprint("body ", body), func(t *testing.T) {
			p := process(t)
			const one = 16 << 20 // within the share of a network
			var calls []*budget.Call
			var contexts []context.Context
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				begun, call := p.Begin(t.Context(), fmt.Sprint("slow ", len(calls)))
				err := call.Hold(ctx, one)
				cancel()
				if err != nil {
					break
				}
				calls, contexts = append(calls, call), append(contexts, begun)
			}
			serving := make(chan struct{})
			address, _ := serve(t, 2*len(calls), func(w http.ResponseWriter, r *http.Request) {
				i, _ := strconv.Atoi(r.URL.Path[1:])
				defer Serves(r, calls[i])()
				serving <- struct{}{}
				if body {
					_, _ = ReadAll(w, r.WithContext(contexts[i]), 8<<20)
				} else {
					_, _ = w.Write(make([]byte, 8<<20))
				}
			})
			for i := range calls {
				text := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", i, 8<<20)
				if !body {
					text = strings.Replace(text, fmt.Sprint(8<<20), "0", 1)
				}
				c := dial(t, address, 2, text)
				_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
				go func() { // 160 KiB a second
					for some := make([]byte, 16<<10); ; time.Sleep(100 * time.Millisecond) {
						err := error(nil)
						if body {
							_, err = c.Write(some)
						} else {
							_, err = io.ReadFull(c, some)
						}
						if err != nil {
							return
						}
					}
				}()
				<-serving
			}
			ctx, call := p.Begin(t.Context(), "newcomer")
			defer call.End()
			if err := call.Hold(ctx, one/2); err != nil {
				t.Errorf("a newcomer beside slow clients: %v", err)
			}
		})
	}
}

// Clients that stop in a header, a body or an answer, and pipelined requests, keep no turn at the CPU.
func TestTurnsAreGivenBack(t *testing.T) {
	for name, sent := range map[string]string{
		"half a header":      "GET / HTTP/1.1\r\nHost: ",
		"half a body":        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
		"half a large body":  "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\nhalf",
		"pipelined requests": strings.Repeat(get, 20_000),
		"an unread answer":   "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
		"no header":          "\r\n \r\n\r\n",
		"an unread body":     "GET /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n",
		"a large header":     "GET / HTTP/1.1\r\na: " + strings.Repeat("a", 40_000),
	} {
		t.Run(name, func(t *testing.T) {
			p := process(t)
			logger := slog.New(slog.DiscardHandler)
			address, _ := serve(t, 100, Observed(logger, telemetry.NewRepeats(logger), true, func(w *Recorder, r *http.Request) {
				from, _, _ := net.SplitHostPort(r.RemoteAddr)
				ctx, call := p.Begin(r.Context(), from)
				r = r.WithContext(ctx)
				defer Serves(r, call)()
				if err := call.Turn(ctx); err != nil && ctx.Err() == nil { // the test has not ended
					t.Error(err)
				}
				if r.Method == "POST" {
					_, _ = ReadAll(w, r, 1<<20)
				}
				call.Rest()                                                // as an operation does before it waits
				if err := call.Turn(ctx); err != nil && ctx.Err() == nil { // the test has not ended
					t.Error(err)
				}
				switch r.URL.Path {
				case "/large":
					_, _ = w.Write(make([]byte, 64<<20))
				case "/unread":
					_, _ = w.Write(make([]byte, 8<<10))
				}
			}).ServeHTTP)
			for i := range 20 * runtime.NumCPU() { // so many that their turns would not end by themselves in time
				c := dial(t, address, byte(100+i%100), "")
				go func() { _, _ = io.WriteString(c, sent) }()
				if strings.Count(sent, get) > 1 {
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
			}
			for i := range 20 {
				began := time.Now()
				if got := status(dial(t, address, byte(10+i), get)); got != 200 || time.Since(began) > 4*time.Second {
					t.Errorf("another client: status %d after %v, want 200 at once", got, time.Since(began))
				}
			}
		})
	}
}

func TestBodies(t *testing.T) {
	p := process(t)
	const limit = 100_000
	address, _ := serve(t, 10, func(w http.ResponseWriter, r *http.Request) {
		ctx, call := p.Begin(r.Context(), "192.0.2.1")
		defer call.End()
		body, err := ReadAll(w, r.WithContext(ctx), limit)
		if err != nil {
			Error(w, err)
			return
		}
		small, large := p.Held()
		fmt.Fprint(w, len(body), " ", small+large > 0)
	})
	for _, row := range []struct {
		size    int
		chunked bool
		want    string
	}{
		{0, false, "0 false"}, {1, false, "1 false"}, {budget.SmallBody, false, "4096 false"}, {budget.SmallBody + 1, false, "4097 true"},
		{limit, false, "100000 true"}, {limit + 1, false, "BODY_TOO_LARGE"},
		{1, true, "1 false"}, {budget.SmallBody - 1, true, "4095 false"}, {limit, true, "100000 true"}, {limit + 1, true, "BODY_TOO_LARGE"}, {3 * limit, true, "BODY_TOO_LARGE"},
	} {
		body := io.Reader(bytes.NewReader(make([]byte, row.size)))
		if row.chunked {
			body = io.MultiReader(body) // hides the size
		}
		answer, err := http.Post("http://"+address, "", body)
		if err != nil {
			t.Errorf("%+v: %v", row, err)
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if !strings.Contains(string(text), row.want) {
			t.Errorf("%+v: got %s", row, text)
		}
	}
	c := dial(t, address, 2, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n"+strings.Repeat(" ", 5000))
	_ = c.(*net.TCPConn).CloseWrite()
	if got := status(c); got != 400 {
		t.Errorf("a body that is cut off: status %d, want 400", got)
	}
}
