package localstack

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Under the name of a binary the test binary replaces it: it answers /readyz and shows
// its environment.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if variables, known := listens[name]; known {
		play(variables)
	}
	if name == "fairpactctl" {
		fmt.Println(os.Args[1:], os.Getenv("DATABASE_URL"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(variables []string) {
	fmt.Println("a line in the log")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /env", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("GET /crash", func(http.ResponseWriter, *http.Request) { os.Exit(7) })
	for _, variable := range variables {
		l, err := net.Listen("tcp4", os.Getenv(variable))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		go http.Serve(l, mux)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	os.Exit(0)
}

func fakeBin(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{LogServer, DealAPI, DeadlineWorker, "fairpactctl"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func startStack(t *testing.T, o Options) *Stack {
	t.Helper()
	o.Bin = fakeBin(t)
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestStack(t *testing.T) {
	dir := t.TempDir()
	s := startStack(t, Options{
		Dir:      dir,
		Replicas: map[string]int{DealAPI: 2, DeadlineWorker: 1},
		Env: map[string][]string{
			"":           {"WIDTH=all"},
			DealAPI:      {"WIDTH=kind"},
			"deal-api-2": {"WIDTH=one"},
		},
	})
	if want := []string{"log-server", "deal-api", "deal-api-2", "deadline-worker"}; !slices.Equal(s.Names(), want) {
		t.Fatalf("processes %v, want %v", s.Names(), want)
	}

	env := func(name string) []string { return strings.Split(get(t, s.AdminURL(name)+"/env"), "\n") }
	for name, want := range map[string][]string{
		"log-server":      {"WIDTH=all", "DATABASE_URL=" + s.DatabaseURL(), "FAIRPACT_SIGNING_KEY=dev://" + dir + "/dev-key.pem"},
		"deal-api":        {"WIDTH=kind", "REDIS_URL=" + s.RedisURL(), "FAIRPACT_BEACON_CHAIN_HASH=" + s.Chain().Hash},
		"deal-api-2":      {"WIDTH=one", "FAIRPACT_LOG_READ_URL=" + s.LogReadURL("log-server")},
		"deadline-worker": {"WIDTH=all", "FAIRPACT_LOG_APPEND_URL=" + s.LogAppendURL("log-server"), "FAIRPACT_BEACON_PERIOD=3"},
	} {
		have := env(name)
		for _, variable := range want {
			if !slices.Contains(have, variable) {
				t.Errorf("%s was not told %s; it has %q", name, variable, have)
			}
		}
	}
	if s.URL("deal-api") == s.URL("deal-api-2") {
		t.Error("two replicas share a port")
	}
	if round := get(t, s.BeaconURL()+"/"+s.Chain().Hash+"/public/1"); !strings.Contains(round, `"round":1,`) {
		t.Errorf("the development beacon answered %s", round)
	}
	if out, err := s.Fairpactctl(t.Context(), "migrate"); err != nil || !strings.Contains(out, s.DatabaseURL()) {
		t.Errorf("fairpactctl said %s, %v", out, err)
	}

	// Only an end without Stop or Kill is a failure.
	url, pid := s.BaseURL(), s.PID("deal-api")
	s.Kill("deal-api")
	if err := s.Start(t.Context(), "deal-api", "WIDTH=this start"); err != nil {
		t.Fatal(err)
	}
	if s.BaseURL() != url || s.PID("deal-api") == pid {
		t.Error("a restart keeps the address and has a new process")
	}
	if !slices.Contains(env("deal-api"), "WIDTH=this start") {
		t.Error("the environment of one start did not arrive")
	}
	if err := s.Restart(t.Context(), "log-server"); err != nil {
		t.Fatal(err)
	}
	ended := s.Ended("deal-api-2")
	if resp, err := http.Get(s.URL("deal-api-2") + "/crash"); err == nil {
		resp.Body.Close()
		t.Error("the crash answered")
	}
	<-ended
	if f := <-s.Failed(); f.Name != "deal-api-2" || f.Err == nil || f.Log != s.Log("deal-api-2") {
		t.Errorf("failure %+v", f)
	}
	select {
	case f := <-s.Failed():
		t.Errorf("an end that was asked for counts as a failure: %+v", f)
	default:
	}
	if said, err := Tail(s.Log("deal-api"), 1); err != nil || said != "a line in the log" {
		t.Errorf("the log ends with %q, %v", said, err)
	}
}

func TestStateStays(t *testing.T) {
	dir := t.TempDir()
	var chain, secret string
	for range 2 {
		s := startStack(t, Options{Dir: dir, Replicas: map[string]int{DealAPI: 1, LogServer: 0, DeadlineWorker: 0}})
		have, err := os.ReadFile(filepath.Join(dir, "server-secret"))
		if err != nil || len(strings.TrimSpace(string(have))) != 64 {
			t.Fatalf("server-secret holds %d bytes, %v", len(have), err)
		}
		if chain != "" && (s.Chain().Hash != chain || string(have) != secret) {
			t.Error("beacon or secret changed between two starts")
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
		t.Errorf("error %v does not say that the port is taken", err)
	}
}

func TestBinaryThatEndsAtItsStart(t *testing.T) {
	bin := fakeBin(t)
	program := filepath.Join(bin, LogServer)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no luck today\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Bin: bin})
	if err == nil || !strings.Contains(err.Error(), "no luck today") || !strings.Contains(err.Error(), LogServer) {
		t.Errorf("error %v does not show which binary failed and what it said", err)
	}
}
