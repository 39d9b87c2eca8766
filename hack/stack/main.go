// Command stack runs all of Fairpact on this machine until Ctrl-C, from the binaries in bin/.
// `make run` runs it.
//
// Environment:
//
//	PORT           the public port on 127.0.0.1 (default 8080)
//	DATABASE_URL   a Postgres to use instead of a private one
//	REDIS_URL      a Redis to use instead of a private one
//	WITNESSES      the number of development witnesses that cosign the log (default 0). Deals
//	               become CERTIFIED only if there are witnesses.
//
// The command passes these variables on to the binaries:
//
//	FAIRPACT_LOG_KEY, FAIRPACT_LOG_ORIGIN, FAIRPACT_LOG_RETIRED_KEYS, FAIRPACT_WITNESS_POLICY_FILE,
//	FAIRPACT_LOG_LEVEL, FAIRPACT_KEY_SET_FILE, FAIRPACT_BEACON_…, OTEL_…,
//	AWS_…, GOOGLE_…, SOFTHSM2_CONF, HTTP_PROXY, HTTPS_PROXY, NO_PROXY
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func main() {
	reset := flag.Bool("reset", false, "remove the data of earlier runs of this checkout, and exit")
	withParent := flag.Bool("exit-with-parent", false, "stop when the parent process ends")
	flag.Parse()
	if *withParent {
		exitWithParent()
	}
	if err := run(*reset); err != nil {
		fmt.Fprintln(os.Stderr, "\nfairpact:", err)
		os.Exit(1)
	}
}

func run(reset bool) error {
	root, err := localstack.Root()
	if err != nil {
		return err
	}
	port, err := number("PORT", 8080, 1, 65535)
	if err != nil {
		return err
	}
	witnesses, err := number("WITNESSES", 0, 0, 9)
	if err != nil {
		return err
	}
	home, err := openHome(filepath.Join(root, ".run"))
	if err != nil {
		return err
	}
	if reset {
		return home.remove()
	}
	defer home.close()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	o := localstack.Options{
		Bin: filepath.Join(root, "bin"), Dir: home.dir, Port: port,
		DatabaseURL: os.Getenv("DATABASE_URL"), RedisURL: os.Getenv("REDIS_URL"), Witnesses: witnesses,
		Env:      map[string][]string{"": passedOn(os.Environ())},
		Progress: func(step string, took time.Duration) { fmt.Printf("  %-34s %5.1fs\n", step, took.Seconds()) },
	}
	if o.DatabaseURL == "" {
		if o.PostgresDir, err = home.postgresDir(); err != nil {
			return err
		}
		fmt.Println("keys, secrets and logs in", home.dir)
		fmt.Println("database in", o.PostgresDir)
	}
	begin := time.Now()
	s, err := localstack.Start(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted during the start")
		}
		return explain(err, port)
	}
	if err := home.announce(s); err != nil {
		return errors.Join(err, s.Close())
	}
	fmt.Printf("\nFairpact is up after %.1fs: %s\n", time.Since(begin).Seconds(), s.BaseURL())
	fmt.Printf("  next, in another terminal:  make demo\n")
	fmt.Printf("  or:                         curl %s/v1/status\n", s.BaseURL())
	fmt.Printf("  the public log:             curl %s/checkpoint\n", s.BaseURL())
	fmt.Printf("  a certificate to keep:      save the answer of GET /v1/deals/{id}/bundle in FILE; check it offline with `bin/fairpactctl verify FILE`\n")
	fmt.Printf("  logs: %s   stop: Ctrl-C\n", filepath.Join(home.dir, "log"))

	failure := untilEnd(ctx, s)
	stop() // a second Ctrl-C kills this process immediately, and its children end with it
	fmt.Println("\nstopping")
	err = errors.Join(failure, s.Close())
	if err == nil {
		fmt.Println("stopped")
	}
	return err
}

func untilEnd(ctx context.Context, s *localstack.Stack) error {
	var postgres, redis <-chan struct{}
	if s.Postgres() != nil {
		postgres = s.Postgres().Done()
	}
	if s.Redis() != nil {
		redis = s.Redis().Done()
	}
	ended := func(name, how, log string) error {
		said, _ := localstack.Tail(log, 20)
		return fmt.Errorf("%s ended by itself%s, so the stack stops; the last lines of %s:\n%s", name, how, log, said)
	}
	select {
	case <-ctx.Done():
		return nil
	case f := <-s.Failed():
		return ended(f.Name, fmt.Sprintf(" (%v)", f.Err), f.Log)
	case <-postgres:
		return ended("Postgres", "", s.Postgres().LogFile())
	case <-redis:
		return ended("Redis", "", s.Redis().LogFile())
	}
}

func number(name string, standard, least, most int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s is %q: set an integer from %d to %d", name, text, least, most)
	}
	return n, nil
}

func passedOn(environ []string) (env []string) {
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		switch name {
		case "FAIRPACT_LOG_LEVEL", "FAIRPACT_LOG_KEY", "FAIRPACT_LOG_ORIGIN", "FAIRPACT_LOG_RETIRED_KEYS", "FAIRPACT_WITNESS_POLICY_FILE", "FAIRPACT_KEY_SET_FILE", "SOFTHSM2_CONF",
			"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy":
			env = append(env, variable)
			continue
		}
		for _, prefix := range []string{"FAIRPACT_BEACON_", "OTEL_", "AWS_", "GOOGLE_"} {
			if strings.HasPrefix(name, prefix) {
				env = append(env, variable)
			}
		}
	}
	return env
}

func explain(err error, port int) error {
	if taken := (*localstack.PortTakenError)(nil); errors.As(err, &taken) {
		return fmt.Errorf("%w, for example with `PORT=%d make run`", taken, port+1)
	}
	if missing := (*localservers.MissingError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%w, or set the URL of a running server: DATABASE_URL for Postgres, REDIS_URL for Redis", err)
	}
	return err
}

// exitWithParent makes the kernel send SIGTERM to this process when its parent ends.
// The kernel forgets this setting when the thread that called prctl ends, so the goroutine
// locks its thread and never returns.
func exitWithParent() {
	asked := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
		close(asked)
		select {}
	}()
	<-asked
}
