package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/platform/service"
)

type running struct {
	t     *testing.T
	at    map[string]string // base URLs by port name
	stop  func()
	ended <-chan error
}

func start(t *testing.T, health *service.Health, work func(context.Context) error, handlers map[string]http.Handler) *running {
	t.Helper()
	lines, logs := io.Pipe()
	logger := slog.New(slog.NewJSONHandler(logs, nil))
	health.Admin, health.Work = "127.0.0.1:0", work
	var ports []service.Port
	for name, handler := range handlers {
		ports = append(ports, service.Port{Name: name, Address: "127.0.0.1:0", Server: &http.Server{Handler: handler, MaxHeaderBytes: 4096}})
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- health.Serve(ctx, logger, ports...) }()
	s := &running{t, map[string]string{}, stop, ended}
	for decoder := json.NewDecoder(lines); len(s.at) <= len(ports); {
		var line struct{ Port, Address string }
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		s.at[line.Port] = "http://" + line.Address
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return s
}

func (s *running) get(port, path string) (status int, body string, closes bool) {
	resp, err := (&http.Client{Transport: &http.Transport{}}).Get(s.at[port] + path)
	if err != nil {
		return 0, err.Error(), false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error(), false
	}
	return resp.StatusCode, string(text), resp.Close
}

func (s *running) becomes(want int, port, path string) {
	s.t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		status, body, _ := s.get(port, path)
		if status == want {
			return
		}
		if time.Now().After(until) {
			s.t.Fatalf("GET %s on the %s port is %d %s after a minute, want %d", path, port, status, body, want)
		}
	}
}

func (s *running) ends() {
	s.t.Helper()
	if err := <-s.ended; err != nil {
		s.t.Errorf("the service ended with the error %v, want none", err)
	}
}

func ready(context.Context) error { return nil }

var quick = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "quick") })

func slow() (handler http.Handler, began, release chan bool) {
	began, release = make(chan bool), make(chan bool)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- true
		<-release
		_, _ = io.WriteString(w, "finished")
	}), began, release
}

func TestServesDuringTheDelayAndThenDrains(t *testing.T) {
	t.Parallel()
	handler, began, release := slow()
	mux := http.NewServeMux()
	mux.Handle("/quick", quick)
	mux.Handle("/slow", handler)
	health := &service.Health{Ready: ready, Delay: 2 * time.Second}
	s := start(t, health, nil, map[string]http.Handler{"public": mux})
	s.becomes(200, "admin", "/readyz")
	if status, body, closes := s.get("public", "/quick"); status != 200 || closes {
		t.Fatalf("before the stop: got %d %s, closes %t; want 200 and an open connection", status, body, closes)
	}
	finished := make(chan string, 1)
	go func() { _, body, _ := s.get("public", "/slow"); finished <- body }()
	<-began
	stopped := time.Now()
	s.stop()
	s.becomes(503, "admin", "/readyz")
	status, body, closes := s.get("public", "/quick")
	if took := time.Since(stopped); took >= health.Delay {
		t.Logf("the machine is slow: the request ended %s after the stop, when the port may be closed", took)
	} else if status != 200 || !closes {
		t.Errorf("during the delay: got %d %s, closes %t; want 200 and a closed connection", status, body, closes)
	}
	s.becomes(0, "public", "/quick")
	if served := time.Since(stopped); served < health.Delay {
		t.Errorf("the port closed %s after the stop, want %s or later", served, health.Delay)
	}
	select {
	case err := <-s.ended:
		t.Errorf("the service ended with a request in flight (%v), want it to wait", err)
	default:
	}
	close(release)
	if body := <-finished; body != "finished" {
		t.Errorf("the request in flight is answered %q, want %q", body, "finished")
	}
	s.ends()
}

// While one port of a stopping service finishes a request, the admin port still serves. The
// other ports accept no requests.
func TestServicePortsCloseAtOnce(t *testing.T) {
	t.Parallel()
	for busy, idle := range map[string]string{"read": "append", "append": "read"} {
		handler, began, release := slow()
		s := start(t, &service.Health{Ready: ready}, nil, map[string]http.Handler{busy: handler, idle: quick})
		finished := make(chan string, 1)
		go func() { _, body, _ := s.get(busy, "/"); finished <- body }()
		<-began
		s.stop()
		s.becomes(0, idle, "/")
		if status, body, _ := s.get("admin", "/metrics"); status != 200 {
			t.Errorf("/metrics while the %s port finishes a request: got %d %s, want 200", busy, status, body)
		}
		close(release)
		if body := <-finished; body != "finished" {
			t.Errorf("the request in flight on the %s port is answered %q, want %q", busy, body, "finished")
		}
		s.ends()
	}
}

func TestThePortsOutliveTheWork(t *testing.T) {
	t.Parallel()
	told, release := make(chan bool), make(chan bool)
	s := start(t, &service.Health{Ready: ready}, func(ctx context.Context) error {
		<-ctx.Done()
		told <- true
		<-release
		return nil
	}, nil)
	s.becomes(200, "admin", "/readyz")
	s.stop()
	<-told
	s.becomes(503, "admin", "/readyz")
	// A port that does not wait for the work would close within this time.
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); {
		for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/metrics": 200} {
			if got, body, _ := s.get("admin", path); got != want {
				t.Fatalf("%s while the work ends: got %d %s, want %d", path, got, body, want)
			}
		}
	}
	close(release)
	s.ends()
	s.becomes(0, "admin", "/healthz")
}

// Idle connections to the admin port do not keep out probes, and are bounded.
func TestAdminPortIsBounded(t *testing.T) {
	t.Parallel()
	s := start(t, &service.Health{Ready: ready}, nil, nil)
	var closed atomic.Int64
	for range 300 {
		idle, err := net.Dial("tcp", strings.TrimPrefix(s.at["admin"], "http://"))
		if err == nil {
			_, err = io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		go func() {
			_, _ = io.Copy(io.Discard, idle) // the answer, and then nothing until the connection is closed
			closed.Add(1)
		}()
	}
	s.becomes(200, "admin", "/healthz")
	for until := time.Now().Add(time.Minute); closed.Load() < 300-256; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d of 300 idle connections are closed, want 44 or more", closed.Load())
		}
	}
	s.stop()
	s.ends()
}

func TestWorkAndPortsEndTogether(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	health := service.Health{Ready: ready, Admin: "127.0.0.1:0", Work: func(context.Context) error { return broken }}
	if err := health.Serve(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, broken) {
		t.Errorf("Serve with failing work: got error %v, want %v", err, broken)
	}
}

func TestATakenPortClosesTheOthers(t *testing.T) {
	listen := func(address string) net.Listener {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	taken := listen("127.0.0.1:0").Addr().String()
	first := listen("127.83.19.7:0") // no other process uses this address, so the port stays free after Close
	_ = first.Close()
	err := (&service.Health{Ready: ready, Admin: "127.0.0.1:0"}).Serve(t.Context(), slog.New(slog.DiscardHandler),
		service.Port{Name: "append", Address: first.Addr().String(), Server: &http.Server{}},
		service.Port{Name: "read", Address: taken, Server: &http.Server{}})
	if err == nil || !strings.Contains(err.Error(), "read port") {
		t.Errorf("Serve with a taken port: got error %v, want one that names the read port", err)
	}
	listen(first.Addr().String())
}
