package forkguard

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
)

func record(size int64) Record { return Record{Size: size, Root: fmt.Sprintf("%064x", size)} }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// testCompareAndSwap checks what every guard must do. It returns the identity of g.
func testCompareAndSwap(t *testing.T, g Guard) string {
	t.Helper()
	empty, err := g.Load(t.Context())
	if err != nil || !empty.Empty() || empty.Guard == "" {
		t.Fatalf("Load of a new guard: %+v, %v; want an identity and no record", empty, err)
	}
	check(t, g.Store(t.Context(), empty, record(0)))
	if err := g.Store(t.Context(), empty, record(1)); !errors.Is(err, ErrMoved) {
		t.Errorf("storing over an outdated record: %v, want ErrMoved", err)
	}
	first, err := g.Load(t.Context())
	if err != nil || first.Size != 0 || first.Root != record(0).Root {
		t.Errorf("Load after the first Store: %+v, %v; want the record of size 0", first, err)
	}
	check(t, g.Store(t.Context(), first, record(7)))
	if got, err := g.Load(t.Context()); err != nil || got.Size != 7 || got.Root != record(7).Root || got.Guard != empty.Guard {
		t.Errorf("Load: %+v, %v; want the record of size 7 and the identity %s", got, err, empty.Guard)
	}
	return empty.Guard
}

func TestFileGuardLocksPersistsAndRefusesDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guard.json")
	g, err := Open("file://" + path)
	check(t, err)
	identity := testCompareAndSwap(t, g)
	if _, err := Open("file://" + path); err == nil || !strings.Contains(err.Error(), "another log-server") {
		t.Errorf("a second guard on the file: %v, want an error that another log-server has it", err)
	}
	check(t, g.Close())
	again, err := Open("file://" + path)
	check(t, err)
	if got, err := again.Load(t.Context()); err != nil || got.Size != 7 || got.Guard != identity {
		t.Errorf("Load after a restart: %+v, %v; want size 7 and the identity %s", got, err, identity)
	}
	_ = again.Close()
	copied := filepath.Join(t.TempDir(), "guard.json")
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(copied, text, 0o600))
	other, err := Open("file://" + copied)
	check(t, err)
	if got, err := other.Load(t.Context()); err != nil || got.Size != 7 || got.Guard == "" || got.Guard == identity {
		t.Errorf("Load of a copy: %+v, %v; want size 7 and another identity than %s", got, err, identity)
	}
	_ = other.Close()
	for _, damaged := range []string{"", "{", `{"root":"` + record(1).Root + `"}`, `{"size":-1,"root":"` + record(1).Root + `"}`, `{"size":1,"root":"zz"}`, `{"size":1}`} {
		check(t, os.WriteFile(path, []byte(damaged), 0o600))
		if g, err := Open("file://" + path); err == nil {
			t.Errorf("the damaged record %q is accepted, want an error", damaged)
			_ = g.Close()
		}
	}
}

func TestPostgresGuard(t *testing.T) {
	uri := servertest.Postgres(t)
	g, err := Open(uri)
	check(t, err)
	identity := testCompareAndSwap(t, g)
	check(t, g.Close())

	again, err := Open(uri)
	check(t, err)
	defer again.Close()
	if got, err := again.Load(t.Context()); err != nil || got.Size != 7 || got.Guard != identity {
		t.Errorf("Load after a restart: %+v, %v; want size 7 and the identity %s", got, err, identity)
	}
	loaded, err := again.Load(t.Context())
	check(t, err)
	var stored atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := again.Store(t.Context(), loaded, record(8)); err == nil {
				stored.Add(1)
			} else if !errors.Is(err, ErrMoved) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := stored.Load(); n != 1 {
		t.Errorf("%d of 8 Stores over the same record succeed, want 1", n)
	}
	pool := again.(*postgres).pool
	for _, damage := range []struct{ statement, want string }{
		{"UPDATE fork_guard SET root = 'zz'", "not a tree head"},
		{"DELETE FROM fork_guard", "lost its row"},
	} {
		_, err := pool.Exec(t.Context(), damage.statement)
		check(t, err)
		if got, err := again.Load(t.Context()); err == nil || !strings.Contains(err.Error(), damage.want) {
			t.Errorf("Load after %s: %+v, %v; want %q", damage.statement, got, err, damage.want)
		}
	}

	_, err = pool.Exec(t.Context(), "CREATE SCHEMA translog; CREATE TABLE translog.log_head ()")
	check(t, err)
	beside, err := Open(uri)
	check(t, err)
	defer beside.Close()
	if _, err := beside.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "holds a log") {
		t.Errorf("Load of a guard in the log's database: %v, want an error", err)
	}
}

// Several processes may use a new guard at once.
func TestPostgresGuardIsMadeOnce(t *testing.T) {
	uri := servertest.Postgres(t)
	identities := make([]string, 8)
	var all sync.WaitGroup
	for i := range identities {
		all.Go(func() {
			g, err := Open(uri)
			if err != nil {
				t.Error(err)
				return
			}
			defer g.Close()
			got, err := g.Load(t.Context())
			if err != nil {
				t.Error(err)
			}
			identities[i] = got.Guard
		})
	}
	all.Wait()
	if all := slices.Compact(identities); len(all) != 1 || all[0] == "" {
		t.Errorf("identities %q, want one", all)
	}
}

// apiServer serves one ConfigMap with the optimistic concurrency of Kubernetes.
type apiServer struct {
	mu      sync.Mutex
	version int
	object  map[string]any
	answer  int  // HTTP status of the next response; 0: serve the request normally
	lose    bool // store the object of the next PUT, then close the connection without an answer
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
	case r.URL.Path != "/api/v1/namespaces/ns/configmaps/guard":
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
		"metadata": map[string]any{"name": "guard", "namespace": "ns", "resourceVersion": "41", "uid": "uid-1", "labels": map[string]any{"kept": "yes"}},
	}}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	return s, guardOf(t, server)
}

func guardOf(t *testing.T, server *httptest.Server) *kubernetes {
	t.Helper()
	dir := t.TempDir()
	check(t, os.WriteFile(dir+"/token", []byte("token-1\n"), 0o600))
	check(t, os.WriteFile(dir+"/ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	k := &kubernetes{url: server.URL + "/api/v1/namespaces/ns/configmaps/guard", name: "ns/guard", tokenFile: dir + "/token", caFile: dir + "/ca.crt"}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func TestKubernetesGuardKeepsTheRestOfTheObject(t *testing.T) {
	s, k := newCluster(t)
	testCompareAndSwap(t, k)
	labels, _ := s.object["metadata"].(map[string]any)["labels"].(map[string]any)
	if labels["kept"] != "yes" {
		t.Errorf("Store changed the rest of the object: %v, want the label kept", s.object)
	}
}

func TestKubernetesGuardReportsFaults(t *testing.T) {
	s, k := newCluster(t)
	loaded, err := k.Load(t.Context())
	check(t, err)
	for status, want := range map[int]string{401: "Role", 403: "Role", 404: "make it with helm upgrade", 500: "500", 302: "302"} {
		s.answer = status
		if _, err := k.Load(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "token-1") {
			t.Errorf("Load answered with status %d: %v, want %q", status, err, want)
		}
		s.answer = status
		if err := k.Store(t.Context(), loaded, record(1)); err == nil || errors.Is(err, ErrMoved) {
			t.Errorf("Store answered with status %d: %v, want an error other than ErrMoved", status, err)
		}
	}
	s.lose = true
	if err := k.Store(t.Context(), loaded, record(1)); err == nil {
		t.Error("Store with a lost answer: no error, want one")
	}
	if got, err := k.Load(t.Context()); err != nil || got.Size != 1 {
		t.Errorf("Load after a Store that persisted: %+v, %v; want size 1", got, err)
	}
	if err := k.Store(t.Context(), loaded, record(1)); !errors.Is(err, ErrMoved) {
		t.Errorf("a repeat: %v, want ErrMoved", err)
	}
	check(t, os.WriteFile(k.tokenFile, []byte("token-2"), 0o600))
	if _, err := k.Load(t.Context()); err == nil {
		t.Error("Load after the token file changed: no error, want one, because each call reads the token")
	}
	check(t, os.WriteFile(k.caFile, []byte("none"), 0o600))
	if _, err := k.Load(t.Context()); err == nil {
		t.Error("Load after the authority's file was damaged: no error, want one, because each call reads the file")
	}
}

func TestOpenRefusesUnusableURIs(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for uri, want := range map[string]string{
		"guard.json": "file://PATH", "etcd://user:s3cret@x": "file://PATH", "postgres://user:s3cret@x:port/y": "not a Postgres URL", "file://guard.json": "absolute", "file:///nonexistent/x": "no such",
		"kubernetes://ns": "NAMESPACE/NAME", "kubernetes://ns/a/b": "NAMESPACE/NAME", "kubernetes://ns/guard": "not in a pod",
	} {
		if _, err := Open(uri); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q and no password", uri, err, want)
		}
	}
}

// silent is a listener whose connections can go silent, like those of a server that lost
// power. The client gets no more answers and does not see the connection end.
type silent struct {
	net.Listener
	now atomic.Pointer[chan struct{}] // the channel of new connections, which go silent when the method fall closes the channel
}

type silentConn struct {
	net.Conn
	fell chan struct{}
}

func (l *silent) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &silentConn{conn, *l.now.Load()}, err
}

// fall silences the connections that were accepted since the previous call of fall.
func (l *silent) fall() {
	next := make(chan struct{})
	if last := l.now.Swap(&next); last != nil {
		close(*last)
	}
}

func (c *silentConn) Write(b []byte) (int, error) {
	select {
	case <-c.fell:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// HTTP/2 pings detect an API server that died silently. The guard then opens a new
// connection long before TCP gives up the old one.
func TestKubernetesGuardReplacesADeadConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1","uid":"uid-1"}}`)
	}))
	listener := &silent{Listener: server.Listener}
	listener.fall()
	server.Listener, server.EnableHTTP2 = listener, true
	server.StartTLS()
	t.Cleanup(server.Close)
	k := guardOf(t, server)
	k.ping = 250 * time.Millisecond
	_, err := k.Load(t.Context())
	check(t, err)
	listener.fall()
	for end := time.Now().Add(time.Minute); ; {
		_, err := k.Load(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no new connection is made after the pings fail: %v", err)
		}
	}
}
