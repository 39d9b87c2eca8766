package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/service"
)

// listening gives a logger for a service and what waits until that has named n
// ports, and gives their addresses.
func listening(t *testing.T, n int) (*slog.Logger, func() map[string]string) {
	t.Helper()
	lines, logs := io.Pipe()
	return slog.New(slog.NewJSONHandler(logs, nil)), func() map[string]string {
		addresses, decoder := map[string]string{}, json.NewDecoder(lines)
		for len(addresses) < n {
			var line struct{ Port, Address string }
			if err := decoder.Decode(&line); err != nil {
				t.Fatal(err)
			}
			addresses[line.Port] = "http://" + line.Address
		}
		go func() { _, _ = io.Copy(io.Discard, lines) }()
		return addresses
	}
}

// await asks again until it is so.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// A service that is told to stop is at once not ready, goes on answering for
// its delay while it sends its clients elsewhere, and finishes what is under way.
func TestServesOnUntilItsClientsAreGone(t *testing.T) {
	t.Parallel()
	began, release := make(chan bool), make(chan bool)
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		began <- true
		<-release
		_, _ = io.WriteString(w, "finished")
	})
	health := service.NewHealth(func(context.Context) error { return nil })
	health.Delay = 2 * time.Second

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	logger, addresses := listening(t, 2)
	go func() {
		ended <- health.Serve(ctx, logger,
			service.Port{Name: "public", Address: "127.0.0.1:0", Server: &http.Server{Handler: mux}},
			service.Port{Name: "admin", Address: "127.0.0.1:0", Server: health.AdminServer()})
	}()
	at := addresses()
	client := &http.Client{Transport: &http.Transport{}}
	get := func(url string) (*http.Response, error) {
		resp, err := client.Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return resp, err
	}
	if resp, err := get(at["admin"] + "/readyz"); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	if resp, err := get(at["public"] + "/quick"); err != nil || resp.Close {
		t.Fatalf("%v %v", resp, err)
	}
	slow := make(chan string, 1)
	go func() {
		resp, err := http.Get(at["public"] + "/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		slow <- string(text)
	}()
	<-began

	stopped := time.Now()
	stop()
	await(t, "not ready", func() bool {
		resp, err := get(at["admin"] + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	resp, err := get(at["public"] + "/quick")
	if took := time.Since(stopped); took >= health.Delay {
		t.Logf("this machine asks %s after the stop, when the port may be closed", took)
	} else if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("during the delay: %v %v", resp, err)
	}
	// The delay is over once a new connection is refused; the old one still runs.
	await(t, "the port refuses", func() bool {
		_, err := get(at["public"] + "/quick")
		return err != nil
	})
	if served := time.Since(stopped); served < health.Delay {
		t.Errorf("the port closed after %s", served)
	}
	select {
	case err := <-ended:
		t.Errorf("ended with a request under way: %v", err)
	default:
	}
	close(release)
	if text := <-slow; text != "finished" {
		t.Errorf("the request under way: %s", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// While one port finishes a request no other takes a new one, and the admin port,
// opened first, tells of it.
func TestAllPortsCloseAtOnce(t *testing.T) {
	t.Parallel()
	quick := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, busy := range []string{"read", "append"} {
		began, release := make(chan bool), make(chan bool)
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			began <- true
			<-release
		})
		health := service.NewHealth(func(context.Context) error { return nil })
		logger, addresses := listening(t, 3)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			handlers := map[string]http.Handler{"read": quick, "append": quick}
			handlers[busy] = slow
			ended <- health.Serve(ctx, logger,
				service.Port{Name: "admin", Address: "127.0.0.1:0", Server: health.AdminServer()},
				service.Port{Name: "read", Address: "127.0.0.1:0", Server: &http.Server{Handler: handlers["read"]}},
				service.Port{Name: "append", Address: "127.0.0.1:0", Server: &http.Server{Handler: handlers["append"]}})
		}()
		at := addresses()
		answers := func(url string) bool {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get(url)
			if err == nil {
				resp.Body.Close()
			}
			return err == nil
		}
		finished := make(chan bool)
		go func() { finished <- answers(at[busy]) }()
		<-began
		stop()
		idle := at["read"]
		if busy == "read" {
			idle = at["append"]
		}
		await(t, "the other port refuses while the "+busy+" port finishes a request", func() bool { return !answers(idle) })
		if !answers(at["admin"] + "/metrics") {
			t.Errorf("/metrics is gone while the %s port finishes a request", busy)
		}
		close(release)
		if !<-finished {
			t.Errorf("the request under way on the %s port was cut", busy)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Work beside the ports is told to stop with them, and they tell of it until it
// has ended; where either fails the other ends, too.
func TestThePortsOutliveTheWork(t *testing.T) {
	t.Parallel()
	health := service.NewHealth(func(context.Context) error { return nil })
	logger, addresses := listening(t, 1)
	ctx, stop := context.WithCancel(t.Context())
	told, release, ended := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		ended <- health.ServeBeside(ctx, logger, func(ctx context.Context) error {
			<-ctx.Done()
			told <- true
			<-release
			return nil
		}, service.Port{Name: "admin", Address: "127.0.0.1:0", Server: health.AdminServer()})
	}()
	admin := addresses()["admin"]
	status := func(path string) int {
		resp, err := http.Get(admin + path)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status("/readyz"); got != 200 {
		t.Fatalf("/readyz: %d", got)
	}
	stop()
	<-told
	await(t, "not ready", func() bool { return status("/readyz") != 200 })
	// Ports that the work does not hold close within this.
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); {
		for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/metrics": 200} {
			if got := status(path); got != want {
				t.Fatalf("%s while the work is finished: %d, want %d", path, got, want)
			}
		}
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := status("/healthz"); got != 0 {
		t.Errorf("/healthz after the end: %d", got)
	}

	broken := errors.New("broken")
	logger = slog.New(slog.DiscardHandler)
	if err := service.NewHealth(nil).ServeBeside(t.Context(), logger, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the work fails: %v", err)
	}
	err := service.NewHealth(nil).ServeBeside(t.Context(), logger, func(ctx context.Context) error { <-ctx.Done(); return nil },
		service.Port{Name: "admin", Address: "256.0.0.1:1", Server: health.AdminServer()})
	if err == nil {
		t.Error("a port that is taken ends nothing")
	}
}
