package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

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

func devKey(dir string) string { return "dev://" + filepath.Join(dir, "key.pem") }

func keySet(t *testing.T, uri string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	check(t, os.WriteFile(path, fmt.Appendf(nil, `{"keys":[{"uri":%q,"signs_from":0}]}`, uri), 0o600))
	return path
}

func settings(t *testing.T) config {
	t.Helper()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "append-secret"), []byte(appendSecret+"\n"), 0o600))
	return config{
		Settings:         signing.Settings{KeySetFile: keySet(t, devKey(dir))},
		DatabaseURL:      servertest.Postgres(t),
		DatabaseConns:    database.MinConns,
		ReadListen:       "127.0.0.1:0",
		AppendListen:     "127.0.0.1:0",
		AdminListen:      "127.0.0.1:0",
		AppendSecretFile: filepath.Join(dir, "append-secret"),
	}
}

func migrated(t *testing.T) config {
	t.Helper()
	c := settings(t)
	check(t, translog.Migrate(t.Context(), c.DatabaseURL))
	return c
}

type running struct {
	ports map[string]string // addresses by port name
	stop  context.CancelFunc
	ended chan error
	log   *bytes.Buffer // the server's log output; to avoid a data race, receive from `ended` before you read it
}

// start runs a log-server in a goroutine. It returns when the ports are open or the server has
// ended.
func start(t *testing.T, c config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &running{ports: map[string]string{}, stop: stop, ended: make(chan error, 1), log: &bytes.Buffer{}}
	read, write := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := run(ctx, c, slog.New(slog.NewJSONHandler(write, nil)))
		_ = write.Close()
		result <- err
	}()
	text := io.TeeReader(read, s.log)
	lines := bufio.NewScanner(text)
	for len(s.ports) < 3 && lines.Scan() {
		var line struct{ Msg, Port, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			s.ports[line.Port] = line.Address
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, text)
		s.ended <- <-result
	}()
	t.Cleanup(func() { stop(); <-closed })
	return s
}

func (s *running) get(t *testing.T, port, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + s.ports[port] + path)
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return response.StatusCode, string(body)
}

func (s *running) append(t *testing.T, signer *signing.Signer) error {
	client := translog.NewClient("http://"+s.ports["append"], "http://"+s.ports["read"], appendSecret)
	entry := [32]byte{1, 2, 3}
	signature, err := signer.Sign(t.Context(), entry)
	if err == nil {
		_, err = client.Append(t.Context(), entry, signature, translog.Tag(entry))
	}
	return err
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A stopping server refuses new connections on the append port. It still commits and answers an
// append that is in flight. After a restart, the leaf of that append is in the log.
func TestStopAnswersTheBatchInFlight(t *testing.T) {
	c := migrated(t)
	signer, err := signing.Open(t.Context(), devKey(filepath.Dir(c.AppendSecretFile)))
	check(t, err)
	s := start(t, c)
	pool, err := pgxpool.New(t.Context(), c.DatabaseURL)
	check(t, err)
	defer pool.Close()
	lock, err := pool.Begin(t.Context())
	check(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), "SELECT FROM translog.log_head FOR UPDATE")
	check(t, err)
	answered := make(chan error, 1)
	go func() { answered <- s.append(t, signer) }()
	await(t, "the batch waits for the lock", func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits)
		return err == nil && waits
	})

	s.stop()
	await(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", s.ports["append"])
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if code, _ := s.get(t, "admin", path); code != want {
			t.Errorf("%s: %d while the batch is under way, want %d", path, code, want)
		}
	}
	if len(answered) > 0 {
		t.Fatalf("the append was answered before its batch was committed: %v, want it to wait", <-answered)
	}
	check(t, lock.Rollback(t.Context()))
	if err := <-answered; err != nil {
		t.Errorf("the append under way: %v, want an answer", err)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(s.log.String(), appendSecret) {
		t.Error("the append secret is in the log")
	}
	s = start(t, c)
	if code, body := s.get(t, "read", "/v1/log/tree-head"); code != http.StatusOK || !strings.HasPrefix(body, `{"tree_size":1,`) {
		t.Errorf("tree head after the restart: status %d, body %s; want 200 and size 1", code, body)
	}
}

func TestSecondSignalEndsTheServer(t *testing.T) {
	c := migrated(t)
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = []string{asServer + "=1", "DATABASE_URL=" + c.DatabaseURL, "FAIRPACT_KEY_SET_FILE=" + c.KeySetFile, "FAIRPACT_APPEND_SECRET_FILE=" + c.AppendSecretFile,
			"FAIRPACT_READ_LISTEN=" + c.ReadListen, "FAIRPACT_APPEND_LISTEN=" + c.AppendListen, "FAIRPACT_ADMIN_LISTEN=" + c.AdminListen, "FAIRPACT_DRAIN_DELAY=1h"}
		stderr, err := child.StderrPipe()
		check(t, err)
		check(t, child.Start())
		lines := bufio.NewScanner(stderr)
		logs := func(text string) {
			t.Helper()
			for lines.Scan() {
				if strings.Contains(lines.Text(), text) {
					return
				}
			}
			t.Fatalf("the server ended without logging %q", text)
		}
		logs("listening")
		check(t, child.Process.Signal(syscall.SIGTERM))
		logs("draining")
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		await(t, "the end", func() bool {
			_ = child.Process.Signal(second)
			return len(ended) > 0
		})
		err = <-ended
		if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != second {
			t.Errorf("after the second signal %s the process ended with %v, want it killed by that signal", second, err)
		}
	}
}

func TestRefusesToStart(t *testing.T) {
	for name, x := range map[string]struct {
		with   func(*testing.T) config
		change func(*config)
		want   string
	}{
		"no schema":       {settings, func(*config) {}, "fairpactctl migrate"},
		"no database":     {settings, func(c *config) { c.DatabaseURL = "postgres://nobody@127.0.0.1:1/none" }, "cannot reach the database"},
		"a bad URL":       {settings, func(c *config) { c.DatabaseURL = "postgres://u:hunter2@%%/" }, "DATABASE_URL"},
		"an empty URL":    {settings, func(c *config) { c.DatabaseURL = "" }, "DATABASE_URL"},
		"a bad key":       {settings, func(c *config) { c.KeySetFile = keySet(t, "carrier-pigeon://x") }, "FAIRPACT_KEY_SET_FILE"},
		"no secret file":  {settings, func(c *config) { c.AppendSecretFile += ".none" }, "FAIRPACT_APPEND_SECRET_FILE"},
		"a short secret":  {settings, func(c *config) { _ = os.WriteFile(c.AppendSecretFile, []byte("short\n"), 0o600) }, "random"},
		"no fork guard":   {migrated, func(c *config) { c.ForkGuard = "guard.json" }, "FAIRPACT_FORK_GUARD"},
		"no such address": {migrated, func(c *config) { c.ReadListen = "256.0.0.1:1" }, "read port"},
	} {
		t.Run(name, func(t *testing.T) {
			c := x.with(t)
			x.change(&c)
			s := start(t, c)
			if err := <-s.ended; err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error()+s.log.String(), "hunter2") {
				t.Errorf("start: %v, want %q and no password", err, x.want)
			}
		})
	}
}

// The server does not start if a closed key signed a tree head larger than the tree size at which
// the key set closes it: the certificates under that head would no longer verify. The server does
// not check disowned (stolen) keys.
func TestRefusesAKeyClosedBelowItsHeads(t *testing.T) {
	c := migrated(t)
	signer, err := signing.Open(t.Context(), devKey(filepath.Dir(c.AppendSecretFile)))
	check(t, err)
	s := start(t, c)
	check(t, s.append(t, signer))
	s.stop()
	check(t, <-s.ended)

	uri := "dev://" + filepath.Join(t.TempDir(), "next.pem")
	label, err := signing.PublicKeyOf(t.Context(), uri)
	check(t, err)
	unused, err := signing.PublicKeyOf(t.Context(), "dev://"+filepath.Join(t.TempDir(), "unused.pem"))
	check(t, err)
	for closed, says := range map[string]string{
		`"tree_size":0`:                 "that key signed the head of size 1",
		`"tree_size":0,"disowned":true`: "", // the server starts
		`"tree_size":1`:                 "",
	} {
		c.Settings = signing.Settings{KeySetFile: filepath.Join(t.TempDir(), "keys.json")}
		document := fmt.Sprintf(`{"keys":[{"pubkey":%q,"uri":%q,"signs_from":5},{"pubkey":%q,"tree_size":0},{"pubkey":%q,%s}]}`, label, uri, unused, signer.PublicKey(), closed)
		check(t, os.WriteFile(c.KeySetFile, []byte(document), 0o600))
		s := start(t, c)
		s.stop()
		if err := <-s.ended; (err == nil) != (says == "") || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want %q", closed, err, says)
		}
	}
}
