package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// The tests run their own binary as the log-server.
const asServer = "FAIRPACT_TEST_RUN_LOG_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(servertest.Main(m))
}

const appendSecret = "0123456789abcdef-append"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// result is what a call returned. ok requires that it succeeded.
type result[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) result[T] { return result[T]{value, err} }

func (r result[T]) ok(t testing.TB) T {
	t.Helper()
	check(t, r.err)
	return r.value
}

// setup is the environment of a log-server, and its signer.
type setup struct {
	env    map[string]string
	signer *signing.Signer
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	dir := t.TempDir()
	secretFile := filepath.Join(dir, "append-secret")
	check(t, os.WriteFile(secretFile, []byte(appendSecret+"\n"), 0o600))
	key := "dev://" + filepath.Join(dir, "key.pem")
	signer := of(signing.Open(t.Context(), key)).ok(t)
	return &setup{signer: signer, env: map[string]string{
		"DATABASE_URL":                servertest.Postgres(t),
		"FAIRPACT_SIGNING_KEY":        key,
		"FAIRPACT_READ_LISTEN":        "127.0.0.1:0",
		"FAIRPACT_APPEND_LISTEN":      "127.0.0.1:0",
		"FAIRPACT_ADMIN_LISTEN":       "127.0.0.1:0",
		"FAIRPACT_APPEND_SECRET_FILE": secretFile,
	}}
}

func (s *setup) migrate(t *testing.T) {
	t.Helper()
	check(t, translog.Migrate(t.Context(), s.env["DATABASE_URL"]))
}

// process is a running log-server.
type process struct {
	command *exec.Cmd
	ports   map[string]string // addresses by name
	ended   chan struct{}
	err     error // the error of Wait; read it after ended is closed

	mu  sync.Mutex
	log strings.Builder
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start starts a log-server, and waits until its ports are open or it has ended.
func (s *setup) start(t *testing.T, more ...string) *process {
	t.Helper()
	self := of(os.Executable()).ok(t)
	p := &process{command: exec.Command(self), ports: make(map[string]string), ended: make(chan struct{})}
	p.command.Env = append(p.command.Env, asServer+"=1", "PATH="+os.Getenv("PATH"))
	for name, value := range s.env {
		p.command.Env = append(p.command.Env, name+"="+value)
	}
	p.command.Env = append(p.command.Env, more...)
	stderr := of(p.command.StderrPipe()).ok(t)
	check(t, p.command.Start())
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("log of the server:\n%s", p.text())
		}
	})
	open := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			var line struct{ Msg, Port, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				p.ports[line.Port] = line.Address
				if len(p.ports) == 3 {
					close(open)
				}
			}
		}
		p.err = p.command.Wait()
		close(p.ended)
	}()
	select {
	case <-open:
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("the server neither opened its ports nor ended")
	}
	return p
}

func (p *process) client() *translog.Client {
	return translog.NewClient("http://"+p.ports["append"], "http://"+p.ports["read"], appendSecret)
}

// end waits for the process and returns its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("the server did not end")
	}
	return p.command.ProcessState.ExitCode()
}

func (p *process) get(t *testing.T, port, path string) (int, string) {
	t.Helper()
	response := of(http.Get("http://" + p.ports[port] + path)).ok(t)
	defer response.Body.Close()
	body := of(io.ReadAll(response.Body)).ok(t)
	return response.StatusCode, string(body)
}

// startReady starts a log-server and waits until it is ready.
func (s *setup) startReady(t *testing.T, more ...string) *process {
	t.Helper()
	p := s.start(t, more...)
	await(t, "ready", func() bool {
		code, _ := p.get(t, "admin", "/readyz")
		return code == http.StatusOK
	})
	return p
}

// append appends an entry and returns its index.
func (s *setup) append(t *testing.T, p *process, e [32]byte) (int64, error) {
	t.Helper()
	return p.client().Append(context.WithoutCancel(t.Context()), e, s.sign(t, e), translog.Tag{})
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	check(t, p.command.Process.Signal(sig))
}

// await polls until the condition holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func entry(n byte) [32]byte { return [32]byte{n, 1, 2, 3} }

func (s *setup) sign(t *testing.T, e [32]byte) string {
	t.Helper()
	signature := of(s.signer.Sign(t.Context(), e)).ok(t)
	return signature
}

// A stopping server refuses new connections and answers the append of the batch in flight.
// The next start has its leaf.
func TestStopAnswersTheBatchInFlight(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	p := s.startReady(t)
	pool := of(pgxpool.New(t.Context(), s.env["DATABASE_URL"])).ok(t)
	defer pool.Close()
	lock := of(pool.Begin(t.Context())).ok(t)
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), "SELECT FROM translog.log_head FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.append(t, p, entry(0))
		answered <- err
	}()
	await(t, "the batch waits for the lock", func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits)
		return err == nil && waits
	})

	p.signal(t, syscall.SIGTERM)
	await(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", p.ports["append"])
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if code, _ := p.get(t, "admin", path); code != want {
			t.Errorf("%s: %d while the batch is under way, want %d", path, code, want)
		}
	}
	select {
	case err := <-answered:
		t.Fatalf("the append was answered before its batch was committed: %v", err)
	default:
	}
	check(t, lock.Rollback(t.Context()))
	if err := <-answered; err != nil {
		t.Errorf("the append under way: %v", err)
	}
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d: %v", code, p.err)
	}
	if strings.Contains(p.text(), appendSecret) {
		t.Error("the append secret is in the log")
	}
	p = s.startReady(t)
	if code, body := p.get(t, "read", "/v1/log/tree-head"); code != http.StatusOK || !strings.HasPrefix(body, `{"tree_size":1,`) {
		t.Errorf("tree head after the restart: %d %s", code, body)
	}
}

// A second signal ends a draining server at once.
func TestSecondSignalEndsTheServer(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := s.startReady(t, "FAIRPACT_DRAIN_DELAY=1h")
		p.signal(t, syscall.SIGTERM)
		await(t, "draining", func() bool { return strings.Contains(p.text(), `"draining"`) })
		await(t, "the end", func() bool {
			_ = p.command.Process.Signal(second)
			select {
			case <-p.ended:
				return true
			default:
				return false
			}
		})
		if status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != second {
			t.Errorf("after %s it ended with %v", second, p.err)
		}
	}
}

func TestRefusesToStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *setup)
		want   string
	}{
		"no schema":      {func(*testing.T, *setup) {}, "fairpactctl migrate"},
		"no database":    {func(_ *testing.T, s *setup) { s.env["DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none" }, "reach the database"},
		"a bad URL":      {func(_ *testing.T, s *setup) { s.env["DATABASE_URL"] = "postgres://u:hunter2@%%/" }, "DATABASE_URL"},
		"no URL":         {func(_ *testing.T, s *setup) { delete(s.env, "DATABASE_URL") }, "DATABASE_URL is not set"},
		"a bad key":      {func(_ *testing.T, s *setup) { s.env["FAIRPACT_SIGNING_KEY"] = "carrier-pigeon://x" }, "FAIRPACT_SIGNING_KEY"},
		"no secret file": {func(_ *testing.T, s *setup) { s.env["FAIRPACT_APPEND_SECRET_FILE"] += ".none" }, "FAIRPACT_APPEND_SECRET_FILE"},
		"no secret":      {func(_ *testing.T, s *setup) { delete(s.env, "FAIRPACT_APPEND_SECRET_FILE") }, "FAIRPACT_APPEND_SECRET_FILE is not set"},
		"no fork guard":  {func(t *testing.T, s *setup) { s.migrate(t); s.env["FAIRPACT_FORK_GUARD"] = "guard.json" }, "FAIRPACT_FORK_GUARD"},
		"a short secret": {func(t *testing.T, s *setup) {
			check(t, os.WriteFile(s.env["FAIRPACT_APPEND_SECRET_FILE"], []byte("short\n"), 0o600))
		}, "random"},
		"no such address": {func(t *testing.T, s *setup) { s.migrate(t); s.env["FAIRPACT_READ_LISTEN"] = "256.0.0.1:1" }, "read port"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			c.change(t, s)
			p := s.start(t)
			if code := p.end(t); code == 0 || !strings.Contains(p.text(), c.want) {
				t.Errorf("exit code %d, want %q in:\n%s", code, c.want, p.text())
			}
			if strings.Contains(p.text(), "hunter2") {
				t.Error("the password is in the log")
			}
		})
	}
}

// A server does not start with a key set that closes a key below a head that the key signed.
// Such a document, for example an older one, would make valid certificates invalid.
func TestRefusesAKeyClosedBelowItsHeads(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	p := s.startReady(t)
	of(s.append(t, p, entry(1))).ok(t)
	p.signal(t, syscall.SIGTERM)
	p.end(t)

	delete(s.env, "FAIRPACT_SIGNING_KEY")
	uri := "dev://" + filepath.Join(t.TempDir(), "next.pem")
	label := of(signing.PublicKeyOf(t.Context(), uri)).ok(t)
	unused := of(signing.PublicKeyOf(t.Context(), "dev://"+filepath.Join(t.TempDir(), "unused.pem"))).ok(t)
	for closed, says := range map[string]string{
		`"tree_size":0`:                 "that key signed the head of size 1",
		`"tree_size":0,"disowned":true`: "", // it starts
		`"tree_size":1`:                 "",
	} {
		s.env["FAIRPACT_KEY_SET_FILE"] = filepath.Join(t.TempDir(), "keys.json")
		document := fmt.Sprintf(`{"keys":[{"pubkey":%q,"uri":%q,"signs_from":5},{"pubkey":%q,"tree_size":0},{"pubkey":%q,%s}]}`, label, uri, unused, s.signer.PublicKey(), closed)
		check(t, os.WriteFile(s.env["FAIRPACT_KEY_SET_FILE"], []byte(document), 0o600))
		p := s.start(t)
		if says == "" {
			p.signal(t, syscall.SIGTERM)
		}
		if code := p.end(t); (code == 0) != (says == "") || !strings.Contains(p.text(), says) {
			t.Errorf("%s: exit code %d, want %q in:\n%s", closed, code, says, p.text())
		}
	}
}
