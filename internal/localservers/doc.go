// Package localservers starts private Postgres and Redis servers for `make run` and for
// tests, on free loopback ports and with random passwords. The servers end when the process
// that started them ends, even by SIGKILL.
//
// Postgres refuses to run as root. If root starts the servers, both run as the user
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
	// Dir keeps the server's files from one start to the next. It is created if missing.
	// The user that runs the server becomes its owner, and must be able to enter the
	// directories above. Empty: a temporary directory that Close removes.
	Dir string
	// Durable makes Postgres flush to disk before it acknowledges a commit. Without Durable
	// a crash of the machine may lose data, but a crash of the server does not. Redis
	// ignores Durable and keeps nothing on disk, because Fairpact uses Redis as a cache.
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
	Package string // its package in Debian and Ubuntu
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed: apt-get install -y %s", e.Server, e.Package)
}

const (
	startBound = 60 * time.Second // from exec to the first answer
	stopBound  = 20 * time.Second // from the signal to stop to SIGKILL
	pollEvery  = 15 * time.Millisecond
	portTries  = 10 // tries of a start, each with another free port
)

// randomHex returns n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
