// Gcpserver runs the key server of the tests by itself, for trying a client or a
// deployment against it: it prints its address, the name of a key and the
// FAIRPACT_SIGNING_KEY for it, and serves until its standard input ends.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func main() {
	g, err := kmstest.StartGCP()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer g.Close()
	name := g.NewKey()
	fmt.Printf("%s %s\n%s\n", g.Addr(), name, g.URI(name))
	_, _ = io.Copy(io.Discard, os.Stdin)
}
