package localservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const helperEnv = "FAIRPACT_LOCALSERVERS_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helper()
	}
	os.Exit(m.Run())
}

func helper() {
	ctx := context.Background()
	p, err := StartPostgres(ctx, Options{})
	if err == nil {
		var r *Redis
		if r, err = StartRedis(ctx, Options{}); err == nil {
			fmt.Println(p.PID(), r.PID(), p.dir.path, r.dir.path)
			select {}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func startPostgres(t *testing.T, o Options) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process ended after Glob had listed it
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, child)
		}
	}
	return pids
}

func waitGone(t *testing.T, pids []int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); slices.ContainsFunc(pids, alive); {
		if time.Now().After(deadline) {
			t.Fatalf("some of the processes %v still run", pids)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestPostgresRestartKeepsPortAndData(t *testing.T) {
	t.Setenv("PGDATA", "/nonexistent") // the server must not inherit this variable
	p := startPostgres(t, Options{})
	url, err := p.EnsureDatabase(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(){func() { _ = p.Stop() }, p.Kill, func() {}} {
		end()
		if err := p.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		connect(t, url)
		if again, err := p.EnsureDatabase(t.Context(), "kept"); err != nil || again != url {
			t.Fatalf("EnsureDatabase of an existing database: got %s (error %v), want %s", again, err, url)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.dir.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close the throwaway directory %s: got %v, want that it does not exist", p.dir.path, err)
	}
}

// TestPostgresPersists also checks which settings a Durable Postgres gets on its command line.
// None of them may make the server faster than an operator's server.
func TestPostgresPersists(t *testing.T) {
	acct, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(tempBase(acct), "persist") // not t.TempDir, because the server's user cannot enter a t.TempDir of root
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: filepath.Join(dir, "pg"), Durable: true}
	first := startPostgres(t, o)
	if _, err := first.EnsureDatabase(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, startPostgres(t, o).URL("kept"))
	const stock = "cluster_name listen_addresses log_timezone logging_collector max_connections port TimeZone unix_socket_directories"
	var set string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(name, ' ' ORDER BY lower(name)) FROM pg_settings WHERE source = 'command line'").Scan(&set); err != nil || set != stock {
		t.Errorf("the command line sets\n%s\nwant\n%s (error %v)", set, stock, err)
	}
}

func TestRedisRestartIsEmptyOnTheSamePort(t *testing.T) {
	r, err := StartRedis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	url := r.URL()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if r.ping(t.Context(), r.Port()) == nil {
		t.Errorf("the stopped Redis still answers on port %d", r.Port())
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.URL() != url {
		t.Errorf("after a restart the URL is %s, want %s", r.URL(), url)
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(cmdline), r.password) {
		t.Errorf("the command line %q shows the password", cmdline)
	}
}

func TestPortTakenForAMoment(t *testing.T) {
	first, err := StartRedis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	type started struct {
		*Redis
		error
	}
	second := make(chan started)
	go func() {
		r, err := StartRedis(t.Context(), Options{Port: first.Port()})
		second <- started{r, err}
	}()
	select {
	case s := <-second:
		t.Fatalf("StartRedis on the taken port %d returned within 200 ms (error %v), want that it waits", first.Port(), s.error)
	case <-time.After(200 * time.Millisecond):
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	s := <-second
	if s.error != nil {
		t.Fatal(s.error)
	}
	if err := s.Redis.Close(); err != nil {
		t.Error(err)
	}
}

func TestKilledParentLeavesNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pg, redis int
	var pgDir, redisDir string
	if _, err := fmt.Sscan(line, &pg, &redis, &pgDir, &redisDir); err != nil {
		t.Fatalf("the helper printed %q, want two process ids and two directories: %v", line, err)
	}
	pids := append(childrenOf(t, pg), pg, redis)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitGone(t, pids)

	// newThrowaway also removes abandoned directories. Make the directories of the killed
	// process old enough to count as abandoned.
	for _, dir := range []string{pgDir, redisDir} {
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-settled)); err != nil {
			t.Fatal(err)
		}
	}
	acct, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	d, err := newThrowaway("test", acct)
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove()
	for _, dir := range []string{pgDir, redisDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of the killed process: got %v, want that it does not exist", dir, err)
		}
	}
}
