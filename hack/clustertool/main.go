// Command clustertool is what the cluster tests run in pods of their own: a
// development beacon, and a probe that tells whether an address can be reached.
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
       clustertool wait                  until it is told to stop
       clustertool fail                  exit code 1`

func main() {
	args := append(os.Args[1:], "", "", "")
	switch args[0] {
	case "beacon":
		server := &http.Server{Addr: args[2], Handler: devbeacon.New([]byte(args[1])), ReadHeaderTimeout: 5 * time.Second}
		fmt.Fprintln(os.Stderr, server.ListenAndServe())
		os.Exit(1)
	case "probe":
		for _, address := range os.Args[2:] {
			fmt.Println(probe(address), address)
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
}

// probe tells whether a connection can be made. A refusal is an answer of the
// other side, so it is not what a policy does.
func probe(address string) string {
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return "closed"
	}
	_ = conn.Close()
	return "open"
}
