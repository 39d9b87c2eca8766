// Package localstack runs all of Fairpact on this machine: private Postgres
// and Redis, the development beacon, and the real binaries as processes of
// their own on loopback ports. `make run` and the black-box tests start the
// same stack.
//
// Every process ends with the one that started it, however that ends.
package localstack

import "time"

// The kinds of binary, which are also the names of their first replicas. A
// second replica is named "deal-api-2", and so on.
const (
	DealAPI        = "deal-api"
	LogServer      = "log-server"
	DeadlineWorker = "deadline-worker"
)

// Options of a stack. Bin alone is required.
type Options struct {
	// Bin is the directory that holds the built binaries; see Build.
	Bin string
	// Dir keeps keys, secrets and logs from one start to the next. Empty: a
	// temporary directory that Close removes.
	Dir string
	// PostgresDir keeps the database. Empty: a throwaway that is faster but
	// would not survive a crash of the machine. The user that Postgres runs as
	// must be able to enter it.
	PostgresDir string
	// DatabaseURL and RedisURL use servers that run already.
	DatabaseURL, RedisURL string
	// LogDatabase keeps the log in a database of its own, beside that of the private
	// Postgres.
	LogDatabase bool
	// Port is deal-api's public port on 127.0.0.1; 0 picks a free one.
	Port int
	// Replicas is how many processes of a kind to start; a kind that is not
	// named gets one, and 0 means none.
	Replicas map[string]int
	// Witnesses is how many small witnesses cosign the log's checkpoints, in this
	// process; more than half of them make the quorum. 0: deals are never CERTIFIED.
	Witnesses int
	// Env adds environment variables ("NAME=value") to the process of that
	// name, or to all replicas of that kind, or by "" to every process; the
	// narrower wins.
	Env map[string][]string
	// Progress is told what is being done and how long it took. May be nil.
	Progress func(step string, took time.Duration)
}

// Failure says that a process ended which nobody had asked to.
type Failure struct {
	Name string
	Err  error  // how it ended
	Log  string // path of its log
}

const (
	readyBound = 3 * time.Minute       // from exec to the first 200 of /readyz
	stopBound  = 35 * time.Second      // from SIGTERM to SIGKILL; longer than they drain
	pollEvery  = 20 * time.Millisecond // between two looks at /readyz
	portTries  = 10
)
