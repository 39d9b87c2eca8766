// Package localservers starts private Postgres and Redis servers for `make
// run` and for the tests, on free loopback ports and with random passwords. They
// end with the process that started them, also if that is killed.
//
// Postgres refuses to run as root. If root starts them, both servers run as the user
// postgres, or as nobody if there is no such user.
package localservers

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Options of a server. The zero value is a throwaway server.
type Options struct {
	// Dir keeps the server's files from one start to the next. It is made if
	// missing, and its owner becomes the user of the server, who must be able to enter
	// the directories above it. Empty: a temporary directory that Close removes.
	Dir string
	// Durable makes Postgres flush to disk before it acknowledges a commit.
	// Without it a crash of the machine may lose data; a crash of the server does
	// not. Redis keeps nothing on disk either way, because Fairpact uses it as a cache.
	Durable bool
	// Port is the loopback port; 0 picks a free one.
	Port int
	// Settings are further settings: "name=value" for Postgres, lines of the
	// configuration for Redis.
	Settings []string
	// Password is the password of Redis. Empty: a random one.
	Password string
}

// MissingError is returned when a server is not installed.
type MissingError struct {
	Server  string // "Postgres" or "Redis"
	Package string // the Debian and Ubuntu package of it
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed: apt-get install -y %s", e.Server, e.Package)
}

const (
	startBound = 60 * time.Second // from exec to the first answer
	stopBound  = 20 * time.Second // from the request to SIGKILL
	pollEvery  = 15 * time.Millisecond
	portTries  = 10
)

// randomHex returns n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
