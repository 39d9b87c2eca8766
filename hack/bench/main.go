// Command bench measures Fairpact and writes a report. For comparison it also measures
// an INSERT by pgbench, a minimal deal service (the floor) and the transparency log
// Tessera. `make bench` runs the command. README.md explains the report.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

type options struct {
	rounds, seconds int
	parts           []string
	finished        int // ended deals in the database before the run
	parties         int // number of parties in the part "draw"
	out             string
	binaries        string // the flag -bin; if empty, this checkout is built
	bin             string // directory of the measured binaries; temporary if the benchmark built them
}

// The parts of a run, in their order.
const (
	partRounds  = "rounds" // in turn: INSERTs by pgbench, a minimal deal service (floor), deals, log appends, read requests
	partSeals   = "seals"
	partDraw    = "draw"
	partTessera = "tessera"
	partCount   = "count"
	partCurve   = "curve"
)

var allParts = []string{partRounds, partSeals, partDraw, partTessera, partCount, partCurve}

func main() {
	o, err := readFlags()
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func readFlags() (options, error) {
	dir, err := benchDir()
	if err != nil {
		return options{}, err
	}
	o := options{rounds: 5, seconds: 2, parties: 10_000}
	quick := flag.Bool("quick", false, "one round, one second for each measurement, a small draw, no curve; the report goes to bin/bench-quick")
	parts := flag.String("parts", "", "comma-separated list of the parts to measure, some of "+strings.Join(allParts, ",")+"; the report keeps the earlier numbers of the other parts")
	flag.IntVar(&o.finished, "finished", 0, "number of ended deals, each with a leaf, to put into the database before the run")
	flag.StringVar(&o.binaries, "bin", "", "directory of built binaries to measure; empty: build this checkout")
	flag.StringVar(&o.out, "out", "", "directory of the report; empty: hack/bench, or bin/bench-quick with -quick")
	flag.Parse()
	o.parts = allParts
	if *quick {
		o.rounds, o.seconds, o.parties = 1, 1, 1000
		o.parts = []string{partRounds, partSeals, partDraw, partTessera, partCount}
		dir = filepath.Join(dir, "../../bin/bench-quick")
	}
	o.out = cmp.Or(o.out, dir)
	if *parts != "" {
		o.parts = strings.Split(*parts, ",")
	}
	for _, part := range o.parts {
		if !slices.Contains(allParts, part) {
			return o, fmt.Errorf("-parts has the unknown part %q: give some of %s, separated by commas", part, strings.Join(allParts, ","))
		}
	}
	return o, nil
}

func benchDir() (string, error) {
	root, err := localstack.Root()
	return filepath.Join(root, "hack/bench"), err
}

func run(ctx context.Context, o options) (err error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	file := filepath.Join(o.out, "report.json")
	r, err := readResults(file)
	if err != nil {
		return err
	}
	if o.bin = o.binaries; o.bin == "" {
		if o.bin, err = os.MkdirTemp("", "fairpact-bench-bin-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.bin)
		say("building the services")
		if err := localstack.Build(ctx, o.bin); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(o.parts, func(part string) bool { return part != partCurve }) {
		if err := measure(ctx, o, r); err != nil {
			return err
		}
	}
	if slices.Contains(o.parts, partCurve) {
		if err := measureCurve(ctx, o, r); err != nil {
			return err
		}
	}
	if err := r.write(file); err != nil {
		return err
	}
	text := report(r)
	fmt.Print("\n", text)
	if err := os.WriteFile(filepath.Join(o.out, "report.md"), []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "report.svg"), []byte(plot(r)), 0o644)
}

func measure(ctx context.Context, o options, r *results) (err error) {
	s := samples{}
	say("starting a stack")
	b, err := start(ctx, o.bin, time.Duration(o.seconds)*time.Second, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.finished > 0 {
		if err := b.fill(o.finished); err != nil {
			return err
		}
	}
	from, err := b.provenance(o)
	if err != nil {
		return err
	}
	for _, part := range allParts {
		if part == partCurve || !slices.Contains(o.parts, part) {
			continue
		}
		switch part {
		case partRounds:
			err = b.rounds(o.rounds)
		case partSeals:
			err = b.seals(500 * o.seconds)
		case partDraw:
			say("measuring a draw of %d parties", o.parties)
			err = b.draw(o.parties)
		case partTessera:
			err = b.tessera()
		case partCount:
			err = b.count(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		r.Parts[part] = from
	}
	r.replace(s)
	return nil
}

func (b *bench) count(r *results) error {
	say("counting statements")
	c, err := b.startCounting()
	if err != nil {
		return err
	}
	defer c.close()
	for _, clients := range []int{1, 64} {
		top, err := c.countDeals(clients, idleTime)
		if err != nil {
			return err
		}
		r.Statements[strconv.Itoa(clients)] = top
	}
	return nil
}

const idleTime = 3 * time.Second

var began = time.Now()

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
