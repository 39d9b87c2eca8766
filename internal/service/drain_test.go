package service_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/service"
)

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

	lines, logs := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- health.Serve(ctx, slog.New(slog.NewJSONHandler(logs, nil)),
			service.Port{Name: "public", Address: "127.0.0.1:0", Server: &http.Server{Handler: mux}},
			service.Port{Name: "admin", Address: "127.0.0.1:0", Server: health.AdminServer()})
	}()
	addresses, decoder := map[string]string{}, json.NewDecoder(lines)
	for len(addresses) < 2 {
		var line struct{ Port, Address string }
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		addresses[line.Port] = "http://" + line.Address
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	client := &http.Client{Transport: &http.Transport{}}
	get := func(url string) (*http.Response, error) {
		resp, err := client.Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return resp, err
	}
	if resp, err := get(addresses["admin"] + "/readyz"); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	if resp, err := get(addresses["public"] + "/quick"); err != nil || resp.Close {
		t.Fatalf("%v %v", resp, err)
	}
	slow := make(chan string, 1)
	go func() {
		resp, err := http.Get(addresses["public"] + "/slow")
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
	for {
		resp, err := get(addresses["admin"] + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	if resp, err := get(addresses["public"] + "/quick"); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("during the delay: %v %v", resp, err)
	}
	// The delay is over once a new connection is refused; the old one still runs.
	for {
		if _, err := get(addresses["public"] + "/quick"); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
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
