// Package e2e plays Fairpact from outside: real binaries, real Postgres and
// Redis, HTTP. What it asserts is what the contract says.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// bin holds the binaries under test, built with their crash points and the race
// detector. FAIRPACT_E2E_BUILD replaces those arguments of go build.
var bin string

func TestMain(m *testing.M) {
	// Most of what a test does here is wait: for deadlines, for processes, for what
	// hangs on purpose. So more of them run at once than there are processors, where
	// -parallel does not say how many.
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+2)); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fairpact-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	args := []string{"-race", "-tags=crashpoints"}
	if given, ok := os.LookupEnv("FAIRPACT_E2E_BUILD"); ok {
		args = strings.Fields(given)
	}
	if remote() == "" {
		if err := localstack.Build(context.Background(), bin, args...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if missing := unseen(); code == 0 && wholeSuite() && len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "codes of the error table that no test has reached:", missing)
		code = 1
	}
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

// sources tells go test what the binaries are built from, so that it takes no
// result out of its cache when any of it has changed. It does not see what
// TestMain reads.
var sources = sync.OnceValue(func() error {
	os.LookupEnv("FAIRPACT_E2E_BUILD")
	for _, root := range []string{"../internal", "../services"} {
		err := filepath.WalkDir(root, func(_ string, _ os.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	_, err := os.Stat("../go.sum")
	return err
})

var common struct {
	once  sync.Once
	stack *localstack.Stack
	err   error
}

// shared is the stack of all tests that neither break nor change it.
func shared(t testing.TB) *localstack.Stack {
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

// own is a stack of the test's own, closed at its end.
func own(t testing.TB, change func(*localstack.Options)) *localstack.Stack {
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
		Bin: bin,
		// The race detector otherwise makes every process linger for a second.
		Env: map[string][]string{"": {"FAIRPACT_KEYS_PER_MINUTE=0", "FAIRPACT_LOG_LEVEL=debug", "GORACE=atexit_sleep_ms=0"}},
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

// eventually waits for a condition; what it waits for has no better signal than
// asking again.
func eventually(t testing.TB, what string, within time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
