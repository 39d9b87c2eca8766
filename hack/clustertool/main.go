// Command clustertool is what the cluster tests run in pods of their own: a
// development beacon, a probe that reports whether an address can be reached, and
// what ends a container's processes as a crash does.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/internal/beacon/devbeacon"
)

const usage = `usage: clustertool beacon SEED ADDRESS   serve the development beacon of a seed
       clustertool probe HOST:PORT...    print "open" or "closed" for each, by a TCP connection within two seconds
       clustertool kill CONTAINER        SIGKILL to the processes of a container of this node, by its id, and print when;
                                         needs root and the node's process ids
       clustertool wait                  until it is told to stop
       clustertool fail                  exit code 1`

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

// probeAll tries all addresses at once and answers in their order.
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

// probe reports whether a connection can be made. A refusal is an answer of the
// other side, so it is not what a policy does.
func probe(address string) string {
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return "closed"
	}
	_ = conn.Close()
	return "open"
}
