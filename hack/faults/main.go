// Command faults plays deals against two replicas of every process while a seeded schedule
// injects faults. It then checks what the clients saw. See README.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// settleBound is the time after the last fault within which every deal must end.
const settleBound = 90 * time.Second

func main() {
	seed := flag.Uint64("seed", 1, "seed that fixes the schedule of faults and each player's deals")
	minutes := flag.Float64("minutes", 2, "minutes during which deals are played and faults happen")
	seeds := flag.Int("seeds", 1, "number of campaigns to run; each campaign after the first adds 1 to the seed")
	written := flag.String("report", "", "write a summary in Markdown to this file")
	bin := flag.String("bin", "", "directory of built binaries to test; empty: build this checkout")
	out := flag.String("out", "", "directory of the history and the logs; empty: bin/faults")
	plant := flag.String("plant", "", "directory of patches; for each patch, run campaigns on a patched copy of HEAD, and fail if they find no violation")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *seed, *seeds, time.Duration(*minutes*float64(time.Minute)), *bin, *out, *plant, *written); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, seeds int, length time.Duration, bin, out, plant, written string) error {
	root, err := localstack.Root()
	if err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(root, "bin/faults")
	}
	if plant != "" {
		return plantAll(ctx, root, plant, out, seed)
	}
	sum := summary{length: length, faults: map[string]int{}}
	if written != "" { // before the build: HEAD may move meanwhile
		commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
		if err != nil {
			return fmt.Errorf("git describe, to name the commit in the report: %w", err)
		}
		sum.commit = string(bytes.TrimSpace(commit))
	}
	if bin == "" {
		bin = filepath.Join(out, "bin")
		say("building the services")
		if err := errors.Join(os.MkdirAll(bin, 0o755), localstack.Build(ctx, bin, "-tags=crashpoints")); err != nil {
			return err
		}
	}
	for seed := seed; len(sum.rows) < seeds; seed++ {
		say("seed %d, duration %s; the history and the logs are in %s", seed, length, out)
		events, err := runCampaign(ctx, seed, length, settleBound, bin, out)
		if err != nil {
			return err
		}
		found := check(events)
		report(os.Stdout, events, found)
		sum.add(seed, events, found)
		if len(found) > 0 {
			return fmt.Errorf("%d violations: repeat with `make faults SEED=%d MINUTES=%g`", len(found), seed, length.Minutes())
		}
	}
	if written != "" {
		return sum.write(written)
	}
	return nil
}

var began = time.Now()

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
