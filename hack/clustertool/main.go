// Command clustertool runs in pods of the cluster tests. It serves a development beacon,
// probes addresses, kills the processes of a container, waits, or fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
)

const usage = `usage: clustertool beacon SEED ADDRESS   serve the development beacon of SEED on ADDRESS
       clustertool probe HOST:PORT...    print "open HOST:PORT" for each address that accepts a TCP connection
                                         within 2 s, and "closed HOST:PORT" for each other address
       clustertool kill CONTAINER        send SIGKILL to all processes of the container with the id CONTAINER,
                                         and print the time of the kill in UTC; needs root and hostPID on the container's node
       clustertool wait                  wait for SIGTERM
       clustertool fail                  exit with code 1`

func main() {
	args := append(os.Args[1:], "", "", "")
	var err error
	switch args[0] {
	case "beacon":
		server := &http.Server{Addr: args[2], Handler: devbeacon.New([]byte(args[1])), ReadHeaderTimeout: 5 * time.Second}
		err = server.ListenAndServe()
	case "probe":
		for _, line := range probeAll(os.Args[2:]) {
			fmt.Println(line)
		}
	case "kill":
		at := time.Now()
		if err = kill("/proc", args[1]); err == nil {
			fmt.Println(at.UTC().Format(time.RFC3339Nano))
		}
	case "wait":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		<-ctx.Done()
	case "fail":
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clustertool:", err)
		os.Exit(1)
	}
}

func probeAll(addresses []string) []string {
	verdicts := make([]chan string, len(addresses))
	for i, address := range addresses {
		verdicts[i] = make(chan string, 1)
		go func() { verdicts[i] <- probe(address) + " " + address }()
	}
	lines := make([]string, len(addresses))
	for i := range lines {
		lines[i] = <-verdicts[i]
	}
	return lines
}

func probe(address string) string {
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return "closed"
	}
	_ = conn.Close()
	return "open"
}

// kill sends SIGKILL to all processes of a container, as the kernel does when a node runs out
// of memory. The names of their control groups contain the container's id.
func kill(proc, container string) error {
	if len(container) < 32 {
		return fmt.Errorf("container id %q is too short: pass all digits of the id", container)
	}
	groups, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cgroup"))
	if err != nil {
		return err
	}
	killed := 0
	for _, file := range groups {
		// The file is missing if the process has just ended.
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), container) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d of container %s: %w", pid, container, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("%[2]s has no process of container %[1]s: run clustertool with hostPID on the container's node", container, proc)
	}
	return nil
}
