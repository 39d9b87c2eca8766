package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/child"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// floor is a running instance of the program hack/bench/floor, a minimal deal service with its log.
type floor struct {
	url       string
	processes map[string]*child.Process
}

// floorName is the prefix of the names of samples in report.json that measure the minimal deal
// service (see floor). "grp" means grouped INSERTs.
const floorName = "floor.grp"

const (
	floorDeals = "floor"
	floorLog   = "floor log"
)

// startFloor builds the minimal deal service (see floor) and starts its two processes. They use a
// separate database on the product's Postgres server.
func (b *bench) startFloor() error {
	program := filepath.Join(b.dir, "floor")
	build := exec.CommandContext(b.ctx, "go", "build", "-buildvcs=false", "-o", program, "./floor")
	root, err := benchDir()
	if err != nil {
		return err
	}
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build hack/bench/floor: %w\n%s", err, out)
	}
	database, err := b.stack.Postgres().EnsureDatabase(b.ctx, "floor")
	if err != nil {
		return err
	}
	b.floor = &floor{processes: map[string]*child.Process{}}
	logURL, err := b.floor.start(b.dir, floorLog, program, "-db", database, "-log")
	if err != nil {
		return err
	}
	b.floor.url, err = b.floor.start(b.dir, floorDeals, program, "-db", database, "-log-url", logURL)
	return err
}

// start starts the program and returns its URL. The program must print its address as the first
// line within 5 s. Its output goes to a log file in the directory dir.
func (f *floor) start(dir, name, program string, args ...string) (string, error) {
	path := filepath.Join(dir, name+".log")
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if f.processes[name], err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return "", err
	}
	for range 500 {
		said, err := firstLine(path)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(said, "127.0.0.1:") {
			return "http://" + said, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(path)
	return "", fmt.Errorf("the %s printed no address within 5 s; its output is:\n%s", name, text)
}

func firstLine(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	line, _ := bufio.NewReader(file).ReadString('\n')
	if !strings.HasSuffix(line, "\n") {
		return "", nil
	}
	return strings.TrimSpace(line), nil
}

func (f *floor) close() {
	for _, process := range f.processes {
		process.Kill()
	}
}

func (b *bench) playFloor(clients int, d time.Duration) (*timed, error) {
	if b.floor == nil {
		if err := b.startFloor(); err != nil {
			return nil, err
		}
	}
	pool := make([]*client, clients)
	for i := range pool {
		pool[i] = newClient(b.floor.url)
		defer pool[i].close()
	}
	type call struct {
		Deal  int64  `json:"deal"`
		Party int    `json:"party"`
		Hash  string `json:"hash"`
	}
	hash := strings.Repeat("2c26b46b68ffc68f", 4)
	t, err := b.load(clients, d, func(i int, note func(string, time.Duration)) error {
		begin := time.Now()
		var made call
		if _, err := pool[i].call(200, "POST", "/create", "", call{}, &made); err != nil {
			return err
		}
		for _, step := range []struct {
			name  string
			party int
		}{{"commit", 1}, {"commit", 2}, {"reveal", 1}, {"reveal", 2}} {
			var answer call
			if _, err := pool[i].call(200, "POST", "/"+step.name, "", call{made.Deal, step.party, hash}, &answer); err != nil {
				return err
			}
		}
		note("deal", time.Since(begin))
		return nil
	})
	if err != nil {
		said, _ := localstack.Tail(filepath.Join(b.dir, floorDeals+".log"), 20)
		err = fmt.Errorf("%w; the output of the floor's deal service ends with:\n%s", err, said)
	}
	return t, err
}
