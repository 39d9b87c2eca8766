// Package localservers starts private Postgres and Redis servers for `make run` and for
// tests, on free loopback ports and with random passwords. The servers end when the process
// that started them ends, even if SIGKILL ends that process.
//
// Postgres refuses to run as root. If root starts the servers, they run as the user "postgres".
// If that user does not exist, they run as the user "nobody".
package localservers

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Options are the options of a server. The zero value starts a throwaway server.
type Options struct {
	// Dir is the directory of the server's files, which remain after Close. Dir is created
	// if missing. The user that runs the server becomes the owner of Dir, and must be able to
	// enter its parent directories. Empty: a temporary directory that Close removes.
	Dir string
	// Durable makes Postgres flush to disk before it acknowledges a commit. Without Durable
	// a crash of the machine may lose data, but a crash of the server does not. Redis
	// ignores Durable and keeps nothing on disk, because Fairpact uses Redis as a cache.
	Durable bool
	// Port is the loopback port; 0 picks a free one.
	Port int
	// Settings are appended to the server's settings. Each is "name=value" for Postgres, or a
	// line of the configuration for Redis.
	Settings []string
	// Password is the password of Redis. Empty: a random one.
	Password string
}

// MissingError is returned when a server is not installed.
type MissingError struct {
	Server  string // "Postgres" or "Redis"
	Package string // the server's package in Debian and Ubuntu
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed: run `apt-get install -y %s`", e.Server, e.Package)
}

const (
	startBound = 60 * time.Second // longest time until a started server answers, including retries on other ports
	stopBound  = 20 * time.Second // time from the stop signal until SIGKILL
	pollEvery  = 15 * time.Millisecond
	portTries  = 10
)

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
