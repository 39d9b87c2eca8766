// Command fairpactctl is the command line of Fairpact, for parties, auditors
// and operators.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairpact/fairpact/internal/ctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, stop restores the default action, so that a second signal kills
	// the process.
	context.AfterFunc(ctx, stop)
	code := ctl.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
