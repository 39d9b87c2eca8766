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

// The tests run this very test binary as the log server.
const asServer = "FAIRPACT_TEST_RUN_LOG_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(servertest.Main(m))
}

const appendSecret = "0123456789abcdef-append"

// setup is the environment of a log server, and its signer.
type setup struct {
	env    map[string]string
	signer *signing.Signer
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	dir := t.TempDir()
	secretFile := filepath.Join(dir, "append-secret")
	if err := os.WriteFile(secretFile, []byte(appendSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := "dev://" + filepath.Join(dir, "key.pem")
	signer, err := signing.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := translog.Migrate(t.Context(), s.env["DATABASE_URL"]); err != nil {
		t.Fatal(err)
	}
}

// process is a running log server.
type process struct {
	command *exec.Cmd
	ports   map[string]string // name to address
	ended   chan struct{}
	err     error // of Wait, once ended is closed

	mu  sync.Mutex
	log strings.Builder
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start runs a log server and returns when its ports are open or it has ended.
func (s *setup) start(t *testing.T, more ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{command: exec.Command(self), ports: make(map[string]string), ended: make(chan struct{})}
	p.command.Env = append(p.command.Env, asServer+"=1", "PATH="+os.Getenv("PATH"))
	for name, value := range s.env {
		p.command.Env = append(p.command.Env, name+"="+value)
	}
	p.command.Env = append(p.command.Env, more...)
	stderr, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
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

// end waits for the process and gives its exit code.
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
	response, err := http.Get("http://" + p.ports[port] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (p *process) waitReady(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		code, body := p.get(t, "admin", "/readyz")
		if code == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never ready: %s", body)
		}
	}
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// await waits for something that has no better signal than asking again.
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
	signature, err := s.signer.Sign(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func TestServesAndDrains(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	p := s.start(t)
	p.waitReady(t)
	if code, _ := p.get(t, "admin", "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	if code, body := p.get(t, "read", "/v1/log/tree-head"); code != http.StatusOK || !strings.HasPrefix(body, `{"tree_size":0,`) {
		t.Errorf("tree head: %d %s", code, body)
	}
	// Appends that are under way when the signal comes are answered.
	const callers = 40
	client := p.client()
	results := make(chan error, callers)
	for n := range callers {
		signature := s.sign(t, entry(byte(n)))
		go func() {
			_, err := client.Append(context.WithoutCancel(t.Context()), entry(byte(n)), signature, translog.Tag{})
			results <- err
		}()
	}
	if err := <-results; err != nil {
		t.Error(err)
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d: %v", code, p.err)
	}
	acknowledged := 1
	for range callers - 1 {
		if err := <-results; err == nil {
			acknowledged++
		}
	}

	// A second life has every leaf that was acknowledged.
	p = s.start(t)
	p.waitReady(t)
	head, err := p.client().TreeHead(t.Context())
	if err != nil || head.TreeSize < int64(acknowledged) {
		t.Errorf("head %+v (%v) after %d acknowledged appends", head, err, acknowledged)
	}
	if strings.Contains(p.text(), appendSecret) {
		t.Error("the append secret is in the log")
	}
}

// A stop waits for the batch in flight: the append that was in it when the signal
// came is answered, while new connections are refused.
func TestFinishesTheBatchInFlight(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	p := s.start(t)
	p.waitReady(t)
	pool, err := pgxpool.New(t.Context(), s.env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), "SELECT FROM translog.log_head FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	signature, answered := s.sign(t, entry(0)), make(chan error, 1)
	go func() {
		_, err := p.client().Append(context.WithoutCancel(t.Context()), entry(0), signature, translog.Tag{})
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
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the append under way: %v", err)
	}
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d: %v", code, p.err)
	}
}

// A second signal ends a server at once, whatever it waits for.
func TestSecondSignal(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := s.start(t, "FAIRPACT_DRAIN_DELAY=1h")
		p.waitReady(t)
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
		"no schema":       {func(*testing.T, *setup) {}, "fairpactctl migrate"},
		"no database":     {func(_ *testing.T, s *setup) { s.env["DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none" }, "reach the database"},
		"a bad URL":       {func(_ *testing.T, s *setup) { s.env["DATABASE_URL"] = "postgres://u:hunter2@%%/" }, "DATABASE_URL"},
		"no URL":          {func(_ *testing.T, s *setup) { delete(s.env, "DATABASE_URL") }, "DATABASE_URL is not set"},
		"a bad key":       {func(_ *testing.T, s *setup) { s.env["FAIRPACT_SIGNING_KEY"] = "carrier-pigeon://x" }, "FAIRPACT_SIGNING_KEY"},
		"bad legacy keys": {func(_ *testing.T, s *setup) { s.env["FAIRPACT_LEGACY_KEYS"] = "es256:00,x" }, "FAIRPACT_LEGACY_KEYS"},
		"no secret file":  {func(_ *testing.T, s *setup) { s.env["FAIRPACT_APPEND_SECRET_FILE"] += ".none" }, "FAIRPACT_APPEND_SECRET_FILE"},
		"no secret":       {func(_ *testing.T, s *setup) { delete(s.env, "FAIRPACT_APPEND_SECRET_FILE") }, "FAIRPACT_APPEND_SECRET_FILE is not set"},
		"no signing key":  {func(_ *testing.T, s *setup) { delete(s.env, "FAIRPACT_SIGNING_KEY") }, "FAIRPACT_SIGNING_KEY is set"},
		"no fork guard":   {func(t *testing.T, s *setup) { s.migrate(t); s.env["FAIRPACT_FORK_GUARD"] = "guard.json" }, "FAIRPACT_FORK_GUARD"},
		"a short secret": {func(t *testing.T, s *setup) {
			if err := os.WriteFile(s.env["FAIRPACT_APPEND_SECRET_FILE"], []byte("short\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "random"},
		"no such address": {func(t *testing.T, s *setup) { s.migrate(t); s.env["FAIRPACT_READ_LISTEN"] = "256.0.0.1:1" }, "read port"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			c.change(t, s)
			p := s.start(t)
			if code := p.end(t); code == 0 || !strings.Contains(p.text(), c.want) {
				t.Errorf("exit code %d, want a word on %q in:\n%s", code, c.want, p.text())
			}
			if strings.Contains(p.text(), "hunter2") {
				t.Error("the password is in the log")
			}
		})
	}
}

// A key set that closes a key below a head that it signed does not start: an older
// document, rolled out later, would make good certificates invalid.
func TestRefusesAKeyClosedBelowItsHeads(t *testing.T) {
	s := newSetup(t)
	s.migrate(t)
	p := s.start(t)
	p.waitReady(t)
	if _, err := p.client().Append(t.Context(), entry(1), s.sign(t, entry(1)), translog.Tag{}); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGTERM)
	p.end(t)

	delete(s.env, "FAIRPACT_SIGNING_KEY")
	uri := "dev://" + filepath.Join(t.TempDir(), "next.pem")
	label, err := signing.PublicKeyOf(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		closed string
		says   string // "": it starts
	}{
		{`"tree_size":0`, "that key signed the head of size 1"},
		{`"tree_size":0,"disowned":true`, ""},
		{`"tree_size":1`, ""},
	} {
		s.env["FAIRPACT_KEY_SET_FILE"] = filepath.Join(t.TempDir(), "keys.json")
		document := fmt.Sprintf(`{"keys":[{"pubkey":%q,"uri":%q,"signs_from":5},{"pubkey":%q,%s}]}`, label, uri, s.signer.PublicKey(), row.closed)
		if err := os.WriteFile(s.env["FAIRPACT_KEY_SET_FILE"], []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		p := s.start(t)
		if row.says == "" {
			p.waitReady(t)
			p.signal(t, syscall.SIGTERM)
		}
		if code := p.end(t); (code == 0) != (row.says == "") || !strings.Contains(p.text(), row.says) {
			t.Errorf("%s: exit code %d, want %q in:\n%s", row.closed, code, row.says, p.text())
		}
	}
}
