// Package e2e is the harness of the black-box tests: stacks of real binaries with
// a real Postgres and Redis, an HTTP client held to the published OpenAPI document,
// and deals to play. The tests are in the packages below it, one for a subject;
// those of e2e/long take minutes (make test-long), e2e/cluster wants a cluster and
// e2e/alerts a Prometheus.
package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/beacon/devbeacon"
	"github.com/fairpact/fairpact/internal/localstack"
)

// Bin holds the binaries under test, built with their crash points.
// FAIRPACT_E2E_BUILD replaces those arguments of go build.
var Bin string

// Main runs the tests of a package of the suite. Most of what a test does here
// is wait, so more of them run at once than there are processors.
func Main(m *testing.M) int {
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+2)); err != nil {
		panic(err)
	}
	if remote() == "" {
		var err error
		if Bin, err = build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if common.stack != nil {
		races := raceReports(common.stack)
		if err := common.stack.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if races != "" {
			fmt.Fprintln(os.Stderr, races)
			code = 1
		}
	}
	return code
}

// build returns the directory of the binaries under test. All packages of the
// suite share it, so that each binary is linked once.
func build() (string, error) {
	args := []string{"-tags=crashpoints"}
	if given, ok := os.LookupEnv("FAIRPACT_E2E_BUILD"); ok {
		args = strings.Fields(given)
	}
	root, err := localstack.Root()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(args, "\n")))
	dir := filepath.Join(root, "bin", "e2e", hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // releases it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	return dir, localstack.Build(context.Background(), dir, args...)
}

// Repo returns the absolute path of a file of the checkout.
func Repo(path string) string {
	root, err := localstack.Root()
	if err != nil {
		panic(err)
	}
	return filepath.Join(root, path)
}

// sources tells go test what the binaries are built from, so that it takes no
// result out of its cache when any of it has changed. It does not see what
// TestMain reads.
var sources = sync.OnceValue(func() error {
	os.LookupEnv("FAIRPACT_E2E_BUILD")
	root, err := localstack.Root()
	if err != nil {
		return err
	}
	for _, dir := range []string{"internal", "services"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ os.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	_, err = os.Stat(filepath.Join(root, "go.sum"))
	return err
})

var common struct {
	once  sync.Once
	stack *localstack.Stack
	err   error
}

// Shared is the stack of all tests that neither break nor change it.
func Shared(t testing.TB) *localstack.Stack {
	t.Helper()
	if remote() != "" {
		t.Fatal("this test needs the processes and servers of a local stack: unset FAIRPACT_BASE_URL")
	}
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	common.once.Do(func() {
		common.stack, common.err = localstack.Start(context.Background(), options())
	})
	if common.err != nil {
		t.Fatal(common.err)
	}
	return common.stack
}

// Own is a stack of the test's own, closed at its end.
func Own(t testing.TB, change func(*localstack.Options)) *localstack.Stack {
	t.Helper()
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	o := options()
	if change != nil {
		change(&o)
	}
	stack, err := localstack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range stack.Names() {
				tail, _ := localstack.Tail(stack.Log(name), 15)
				t.Logf("%s:\n%s", name, tail)
			}
		}
		if races := raceReports(stack); races != "" {
			t.Error(races)
		}
		if err := stack.Close(); err != nil {
			t.Error(err)
		}
	})
	return stack
}

func options() localstack.Options {
	return localstack.Options{
		Bin: Bin,
		// The race detector otherwise makes every process linger for a second.
		Env: map[string][]string{"": {"FAIRPACT_KEYS_PER_MINUTE=0", "FAIRPACT_DEAL_UNITS_PER_MINUTE=0", "FAIRPACT_OPEN_DEAL_UNITS=0", "FAIRPACT_LOG_LEVEL=debug", "GORACE=atexit_sleep_ms=0"}},
	}
}

// raceReports gives what the race detector wrote into the logs.
func raceReports(stack *localstack.Stack) string {
	var found strings.Builder
	for _, name := range stack.Names() {
		log, err := os.ReadFile(stack.Log(name))
		if err != nil {
			fmt.Fprintln(&found, err)
		} else if _, report, ok := strings.Cut(string(log), "WARNING: DATA RACE"); ok {
			fmt.Fprintf(&found, "data race in %s:\n%.4000s\n", name, report)
		}
	}
	return found.String()
}

// Eventually waits for a condition; what it waits for has no better signal than
// asking again.
func Eventually(t testing.TB, what string, within time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// Tests that need nothing but HTTP also play against a deployment elsewhere:
//
//	FAIRPACT_BASE_URL     where its deal-api answers
//	FAIRPACT_BEACON_SEED  seed of its development beacon
//
// Choose them by -run: one that needs the processes behind the URL fails.
func remote() string { return os.Getenv("FAIRPACT_BASE_URL") }

// BaseURL is where deal-api answers.
func BaseURL(t testing.TB) string {
	t.Helper()
	if remote() != "" {
		return remote()
	}
	return Shared(t).BaseURL()
}

// BeaconChain is the chain that random.v1 draws from.
func BeaconChain(t testing.TB) beacon.Chain {
	t.Helper()
	if remote() != "" {
		return devbeacon.New([]byte(os.Getenv("FAIRPACT_BEACON_SEED"))).Chain()
	}
	return Shared(t).Chain()
}

// SecondLogOf makes a process call the second log-server.
func SecondLogOf(stack *localstack.Stack) []string {
	return []string{"FAIRPACT_LOG_READ_URL=" + stack.LogReadURL(SecondLog), "FAIRPACT_LOG_APPEND_URL=" + stack.LogAppendURL(SecondLog)}
}

const (
	SecondAPI    = localstack.DealAPI + "-2"
	SecondLog    = localstack.LogServer + "-2"
	SecondWorker = localstack.DeadlineWorker + "-2"
)

// Unrests are what can happen to Redis while the service is used. Each goes on
// until it is stopped.
var Unrests = map[string]func(t *testing.T, stack *localstack.Stack) (stop func()){
	"up": func(*testing.T, *localstack.Stack) func() { return func() {} },
	"down": func(t *testing.T, stack *localstack.Stack) func() {
		if err := stack.Redis().Stop(); err != nil {
			t.Fatal(err)
		}
		return func() {}
	},
	"emptied": func(t *testing.T, stack *localstack.Stack) func() {
		client := Cache(t, stack)
		return again(t, 2*time.Millisecond, func(ctx context.Context) error { return client.FlushAll(ctx).Err() })
	},
	"restarted": func(t *testing.T, stack *localstack.Stack) func() {
		return again(t, 100*time.Millisecond, stack.Redis().Restart)
	},
	// Longer than deal-api waits for it, and awake for as long as deal-api leaves
	// a Redis alone that has failed.
	"hung": func(t *testing.T, stack *localstack.Stack) func() {
		pid := stack.Redis().PID()
		stop := again(t, 1200*time.Millisecond, func(ctx context.Context) error {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return err
			}
			Pause(ctx, 600*time.Millisecond)
			return syscall.Kill(pid, syscall.SIGCONT)
		})
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		return stop
	},
}

// again does something over and over, the first time at once, until it is
// stopped; what is under way is then finished.
func again(t *testing.T, every time.Duration, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			if err := do(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("Redis: %v", err)
				return
			}
			Pause(ctx, every)
		}
	})
	once := sync.OnceFunc(func() { cancel(); loop.Wait() })
	t.Cleanup(once)
	return once
}

func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
