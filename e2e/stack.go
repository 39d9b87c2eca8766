// Package e2e is the harness of the black-box tests. It starts stacks of real binaries
// with a real Postgres and Redis, and makes the calls of whole deals. Its HTTP client
// checks calls against the published OpenAPI document. The tests are in its
// subdirectories, one for each subject. e2e/long takes minutes (make test-long),
// e2e/cluster needs a cluster, and e2e/alerts needs Prometheus.
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
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// Bin is the directory of the binaries under test. By default they are built with
// -tags=crashpoints. FAIRPACT_E2E_BUILD sets other arguments for go build. If that variable is
// unset, FAIRPACT_E2E_BIN may name a directory of binaries that are already built. make test
// builds the binaries once for all packages and sets FAIRPACT_E2E_BIN.
var Bin string

// Main runs the tests of a package. Up to GOMAXPROCS+2 tests run in parallel, because most tests
// wait most of the time.
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

// build returns the directory of the binaries under test. All packages share the directory, so that
// each binary is linked once.
func build() (string, error) {
	args := []string{"-tags=crashpoints"}
	if given, ok := os.LookupEnv("FAIRPACT_E2E_BUILD"); ok {
		args = strings.Fields(given)
	} else if built := os.Getenv("FAIRPACT_E2E_BIN"); built != "" {
		return built, nil
	}
	root, err := localstack.Root()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(args, "\n")))
	dir := filepath.Join(root, "bin", "e2e", hex.EncodeToString(sum[:4]))
	unlock, err := lockDir(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
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

// sources looks up the source files of the binaries, and the environment variables that `build`
// reads. go test records these files and variables. If one of them changes, go test does not
// reuse a cached result. sources runs within a test, because go test does not record what TestMain
// reads.
var sources = sync.OnceValue(func() error {
	os.LookupEnv("FAIRPACT_E2E_BUILD")
	os.LookupEnv("FAIRPACT_E2E_BIN")
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

// Shared returns the stack that the tests of a package share. A test that breaks or configures a
// stack uses Own.
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

// Own starts a stack for one test, and closes it at the end of the test.
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
		// Without atexit_sleep_ms=0, the race detector delays every exit by a second.
		Env: map[string][]string{"": {"FAIRPACT_KEYS_PER_MINUTE=0", "FAIRPACT_DEAL_UNITS_PER_MINUTE=0", "FAIRPACT_OPEN_DEAL_UNITS=0", "FAIRPACT_KEY_MIB_PER_DAY=0", "FAIRPACT_NETWORK_MIB_PER_DAY=0", "FAIRPACT_LOG_LEVEL=debug", "GORACE=atexit_sleep_ms=0"}},
	}
}

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

// Eventually calls `cond` every 20 ms until `cond` returns true. The test fails if this takes longer
// than the duration `within`.
func Eventually(t testing.TB, what string, within time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %s: %s", within, what)
		}
	}
}

// remote returns the URL of an existing deployment to test. It returns an empty string if the tests
// start their own stacks. Two variables describe an existing deployment:
//
//	FAIRPACT_BASE_URL     the URL of its deal-api
//	FAIRPACT_BEACON_SEED  the seed of its development beacon
//
// Use -run to select tests that need only HTTP. Other tests fail.
func remote() string { return os.Getenv("FAIRPACT_BASE_URL") }

// BaseURL returns the URL of deal-api.
func BaseURL(t testing.TB) string {
	t.Helper()
	if remote() != "" {
		return remote()
	}
	return Shared(t).BaseURL()
}

// BeaconChain returns the beacon chain of random.v1.
func BeaconChain(t testing.TB) drand.Chain {
	t.Helper()
	if remote() != "" {
		return devbeacon.New([]byte(os.Getenv("FAIRPACT_BEACON_SEED"))).Chain()
	}
	return Shared(t).Chain()
}

// SignRound returns the signature of a round of BeaconChain, even before the round is published.
func SignRound(t testing.TB, round int64) string {
	t.Helper()
	if remote() != "" {
		return hex.EncodeToString(devbeacon.New([]byte(os.Getenv("FAIRPACT_BEACON_SEED"))).Sign(round))
	}
	return hex.EncodeToString(Shared(t).SignRound(round))
}

// PostgresGuard starts a Postgres for the fork guard of several log-servers, and returns the setting that names it.
func PostgresGuard(t testing.TB) []string {
	t.Helper()
	p, err := localservers.StartPostgres(t.Context(), localservers.Options{})
	Must(t, err)
	t.Cleanup(func() { Must(t, p.Close()) })
	return []string{"FAIRPACT_FORK_GUARD=" + p.AdminURL()}
}

// SecondLogEnv returns environment variables that make a process call the stack's second log-server.
func SecondLogEnv(stack *localstack.Stack) []string {
	return []string{"FAIRPACT_LOG_READ_URL=" + stack.LogReadURL(SecondLog), "FAIRPACT_LOG_APPEND_URL=" + stack.LogAppendURL(SecondLog)}
}

const (
	SecondAPI    = localstack.DealAPI + "-2"
	SecondLog    = localstack.LogServer + "-2"
	SecondWorker = localstack.DeadlineWorker + "-2"
)

// Pause waits for the duration d, or until ctx ends if that is earlier.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
