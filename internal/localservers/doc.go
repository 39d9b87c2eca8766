// Package localservers starts private Postgres and Redis servers for `make
// run` and for the tests: on free loopback ports, with random passwords, out
// of the way of whatever else the machine runs, and gone when the process
// that started them is gone, however it ended.
//
// Postgres refuses to run as root, so when started by root both servers run
// as the user postgres, or nobody where there is none.
package localservers

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Options of a server. The zero value is a throwaway server.
type Options struct {
	// Dir keeps the server's files from one start to the next. It is made if
	// missing, and given to the user the server runs as. Empty: a temporary
	// directory that Close removes.
	Dir string
	// Durable makes Postgres flush to disk before it acknowledges a commit.
	// Without it a crash of the machine, though not of the server, may lose
	// data. Redis keeps nothing on disk either way: to Fairpact it is a cache.
	Durable bool
	// Port is the loopback port; 0 picks a free one.
	Port int
	// Settings are added to those of the server: "name=value" for Postgres, lines
	// of the configuration for Redis.
	Settings []string
	// Password is that of Redis; empty: a random one.
	Password string
}

// MissingError says that a server is not installed, or not in working order.
type MissingError struct {
	Server  string   // "Postgres" or "Redis"
	Package string   // the Debian and Ubuntu package that brings it
	Tried   []string // what was found or looked at, and what was wrong with it
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("no working %s found (%s); install it: apt-get install -y %s",
		e.Server, strings.Join(e.Tried, "; "), e.Package)
}

const (
	startBound = 60 * time.Second // from exec to the first answer
	stopBound  = 20 * time.Second // from the request to SIGKILL
	pollEvery  = 15 * time.Millisecond
	portTries  = 10
)

// randomHex gives n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
