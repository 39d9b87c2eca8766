package forkguard

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func record(size int64) Record { return Record{Size: size, Root: fmt.Sprintf("%064x", size)} }

// conforms is what every guard does.
func conforms(t *testing.T, g Guard) {
	t.Helper()
	empty, err := g.Load(t.Context())
	if err != nil || !empty.Empty() {
		t.Fatalf("%+v, %v; want no record", empty, err)
	}
	if err := g.Store(t.Context(), empty, record(0)); err != nil {
		t.Fatal(err)
	}
	if err := g.Store(t.Context(), empty, record(1)); !errors.Is(err, ErrMoved) {
		t.Errorf("an old record: %v, want ErrMoved", err)
	}
	first, err := g.Load(t.Context())
	if err != nil || first.Size != 0 || first.Root != record(0).Root {
		t.Errorf("%+v, %v", first, err)
	}
	if err := g.Store(t.Context(), first, record(7)); err != nil {
		t.Fatal(err)
	}
	if got, err := g.Load(t.Context()); err != nil || got.Size != 7 || got.Root != record(7).Root {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guard.json")
	g, err := Open("file://" + path)
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, g)
	if _, err := Open("file://" + path); err == nil || !strings.Contains(err.Error(), "another log-server") {
		t.Errorf("a second one: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open("file://" + path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Load(t.Context()); err != nil || got.Size != 7 {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	_ = again.Close()
	for _, damaged := range []string{"", "{", `{"root":"` + record(1).Root + `"}`, `{"size":-1,"root":"` + record(1).Root + `"}`, `{"size":1,"root":"zz"}`, `{"size":1}`} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if g, err := Open("file://" + path); err == nil {
			t.Errorf("%q: taken", damaged)
			_ = g.Close()
		}
	}
}

// apiServer is one ConfigMap behind optimistic concurrency, as the API server
// has it.
type apiServer struct {
	mu      sync.Mutex
	version int
	object  map[string]any // nil: there is none
	answer  int            // a status instead, once
	lose    bool           // the answer to the next PUT is lost
	puts    int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.answer
	s.answer = 0
	switch {
	case r.Header.Get("Authorization") != "Bearer token-1":
		status = http.StatusUnauthorized
	case status != 0:
	case r.URL.Path != "/api/v1/namespaces/ns/configmaps/guard" || s.object == nil:
		status = http.StatusNotFound
	case r.Method == http.MethodPut:
		var next map[string]any
		if err := json.NewDecoder(r.Body).Decode(&next); err != nil {
			status = http.StatusBadRequest
			break
		}
		metadata, _ := next["metadata"].(map[string]any)
		if metadata["resourceVersion"] != fmt.Sprint(s.version) {
			status = http.StatusConflict
			break
		}
		s.version++
		s.puts++
		metadata["resourceVersion"] = fmt.Sprint(s.version)
		s.object = next
		if s.lose {
			s.lose = false
			panic(http.ErrAbortHandler)
		}
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	_ = json.NewEncoder(w).Encode(s.object)
}

func newCluster(t *testing.T) (*apiServer, *kubernetes) {
	t.Helper()
	s := &apiServer{version: 41, object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "guard", "namespace": "ns", "resourceVersion": "41", "labels": map[string]any{"kept": "yes"}},
	}}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token":  "token-1\n",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := &kubernetes{url: server.URL + "/api/v1/namespaces/ns/configmaps/guard", name: "ns/guard", tokenFile: dir + "/token", caFile: dir + "/ca.crt"}
	t.Cleanup(func() { _ = k.Close() })
	return s, k
}

func TestKubernetes(t *testing.T) {
	s, k := newCluster(t)
	conforms(t, k)
	labels, _ := s.object["metadata"].(map[string]any)["labels"].(map[string]any)
	if labels["kept"] != "yes" {
		t.Errorf("the rest of the object is not kept: %v", s.object)
	}
}

func TestKubernetesFaults(t *testing.T) {
	s, k := newCluster(t)
	loaded, err := k.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]string{401: "Role", 403: "Role", 404: "the chart makes it", 500: "500", 302: "302"} {
		s.answer = status
		if _, err := k.Load(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "token-1") {
			t.Errorf("%d: %v; want %q", status, err, want)
		}
		s.answer = status
		if err := k.Store(t.Context(), loaded, record(1)); err == nil || errors.Is(err, ErrMoved) {
			t.Errorf("%d to a Store: %v", status, err)
		}
	}
	s.lose = true
	if err := k.Store(t.Context(), loaded, record(1)); err == nil {
		t.Error("the lost answer to a Store is an error")
	}
	if got, err := k.Load(t.Context()); err != nil || got.Size != 1 {
		t.Errorf("it persisted: %+v, %v", got, err)
	}
	if err := k.Store(t.Context(), loaded, record(1)); !errors.Is(err, ErrMoved) {
		t.Errorf("a repeat: %v, want ErrMoved", err)
	}
	if err := os.WriteFile(k.tokenFile, []byte("token-2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Load(t.Context()); err == nil {
		t.Error("the token is read again at each call")
	}
	if err := os.WriteFile(k.caFile, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Load(t.Context()); err == nil {
		t.Error("the authority is read again at each call")
	}
}

// Of those who loaded one record, one stores.
func TestKubernetesRace(t *testing.T) {
	s, k := newCluster(t)
	loaded, err := k.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	results := make([]error, 8)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = k.Store(t.Context(), loaded, record(int64(i))) })
	}
	all.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, ErrMoved) {
			t.Error(err)
		}
	}
	if won != 1 || s.puts != 1 {
		t.Errorf("%d won, %d were stored", won, s.puts)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for uri, want := range map[string]string{
		"guard.json": "file://PATH", "etcd://x": "file://PATH", "file://guard.json": "absolute", "file:///nonexistent/x": "no such",
		"kubernetes://ns": "NAMESPACE/NAME", "kubernetes://ns/a/b": "NAMESPACE/NAME", "kubernetes://ns/guard": "not in a pod",
	} {
		if _, err := Open(uri); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
	}
}
