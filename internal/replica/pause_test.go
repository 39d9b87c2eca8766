package replica

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

// The tests run this very test binary as a process that signs without a pause.
const (
	asMember = "FAIRPACT_TEST_RUN_MEMBER" // its database
	asSet    = "FAIRPACT_TEST_RUN_SET"    // its key set
)

const (
	pausedLifetime = 4 * time.Second
	forgetsAfter   = patience / 2 // how long it counts the others' rows as live, however late it wakes
)

// signForEver prints a line when it begins to sign and one when it can no more.
func signForEver() {
	set, err := signing.ParseKeySet([]byte(os.Getenv(asSet)))
	if err != nil {
		panic(err)
	}
	times := timesFor(pausedLifetime)
	times.lifetime = forgetsAfter
	g, err := open(context.Background(), os.Getenv(asMember), "deal-api", stamp{}, set, quiet, times)
	if err != nil {
		panic(err)
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := g.Sign(ctx, [32]byte{1})
		cancel()
		if err != nil {
			fmt.Println("refused", err)
		} else {
			fmt.Println("signed")
		}
		time.Sleep(time.Millisecond)
	}
}

// A process that was paused while another went on with a key that it does not
// accept signs nothing when it wakes, and goes on by itself once it may.
func TestPausedProcess(t *testing.T) {
	t.Parallel()
	sets := newKeys(t).sets(t)
	url, table := newTable(t, pausedLifetime)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), asMember+"="+url, asSet+"="+string(sets["before"].Document()))
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	lines := make(chan string, 1<<16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	next := func(want string) (others int) {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatal("the process ended")
				}
				if len(line) >= len(want) && line[:len(want)] == want {
					return others
				}
				others++
			case <-end:
				t.Fatalf("it never said %q", want)
			}
		}
	}
	next("signed")
	if err := command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := openGate(t, url, sets["promoted"], pausedLifetime)
	other.mustPass(t)
	for len(lines) > 0 { // of before the pause
		<-lines
	}
	// It wakes, and is not told at once what has happened meanwhile.
	unlock := table.hang(t)
	if err := command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		if err := table.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	unlock()
	// One signature may have been on its way to its caller when the pause began.
	if signed := next("refused"); signed > 1 {
		t.Errorf("%d signatures after the pause", signed)
	}
	if err := other.signs(t, patience); err != nil {
		t.Errorf("the other was disturbed: %v", err)
	}
	other.Close()
	next("signed")
}
