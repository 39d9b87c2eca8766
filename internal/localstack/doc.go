// Package localstack runs all of Fairpact on this machine: private Postgres and
// Redis, the development beacon, and the real binaries as processes on loopback
// ports. `make run` and the black-box tests start the same stack.
//
// All processes end when the process that started them ends, even by SIGKILL.
package localstack

import "time"

// The kinds of binary. A kind is also the name of its first replica; the second replica of
// deal-api is named "deal-api-2", and so on.
const (
	DealAPI        = "deal-api"
	LogServer      = "log-server"
	DeadlineWorker = "deadline-worker"
)

// Options of a stack. Only Bin is required.
type Options struct {
	// Bin is the directory of the built binaries; see Build.
	Bin string
	// Dir keeps keys, secrets and logs from one start to the next. Empty: a
	// temporary directory that Close removes.
	Dir string
	// PostgresDir keeps the database from one start to the next. The user that Postgres
	// runs as must be able to enter it. Empty: a temporary directory, and Postgres does not
	// flush to disk.
	PostgresDir string
	// DatabaseURL and RedisURL name running servers to use instead of private ones.
	DatabaseURL, RedisURL string
	// LogDatabase keeps the log in a separate database of the private Postgres.
	LogDatabase bool
	// Port is deal-api's public port on 127.0.0.1; 0 picks a free one.
	Port int
	// Replicas is the number of processes of each kind. A missing kind gets one process.
	Replicas map[string]int
	// Witnesses is the number of development witnesses, which run in this process and
	// cosign the log's checkpoints. The quorum is more than half of them. 0: deals are
	// never CERTIFIED.
	Witnesses int
	// Env adds environment variables ("NAME=value") to a process by its name, to all
	// replicas of a kind by the kind, or to every process by "". A name takes
	// precedence over a kind, and a kind over "".
	Env map[string][]string
	// Progress, if set, is called after each step with its duration.
	Progress func(step string, took time.Duration)
}

// Failure describes a process that ended without Stop, Kill or Signal.
type Failure struct {
	Name string
	Err  error  // how it ended
	Log  string // path of its log
}

const (
	readyBound = 3 * time.Minute       // from exec to the first 200 of /readyz
	stopBound  = 35 * time.Second      // from SIGTERM to SIGKILL; longer than the binaries drain
	pollEvery  = 20 * time.Millisecond // between two requests of /readyz
	portTries  = 10                    // tries of a first start, each with other ports
)
