// Package localstack runs all of Fairpact on this machine: private Postgres and
// Redis, the development beacon, and the real binaries as processes on loopback
// ports. `make run` and the black-box tests start the same stack.
//
// If the process that started the stack ends, even by SIGKILL, all processes of the stack end
// too.
package localstack

import "time"

// The kinds of binary. A kind is also the name of its first replica; the second replica of
// deal-api is named "deal-api-2", and so on.
const (
	DealAPI        = "deal-api"
	LogServer      = "log-server"
	DeadlineWorker = "deadline-worker"
)

// Options configures a stack. Only Bin is required.
type Options struct {
	// Bin is the directory of the built binaries; see Build.
	Bin string
	// Dir is the directory of keys, secrets and logs. The next start keeps the keys and
	// secrets, and removes the logs. If Dir is "", the stack uses a temporary directory that
	// Close removes.
	Dir string
	// PostgresDir keeps the files of the private Postgres from one start to the next. The user
	// that Postgres runs as must be able to enter the directories above PostgresDir. If
	// PostgresDir is "", Postgres uses a temporary directory and does not flush to disk.
	PostgresDir string
	// DatabaseURL and RedisURL, if set, are the URLs of running servers. The stack uses these
	// servers instead of private ones.
	DatabaseURL, RedisURL string
	// LogDatabase keeps the transparency log in a separate database of the private Postgres.
	LogDatabase bool
	// Port is the public port of the first deal-api on 127.0.0.1; 0 picks a free port.
	Port int
	// Replicas is the number of processes of each kind. A missing kind gets one process.
	Replicas map[string]int
	// Witnesses is the number of development witnesses, which run in this process and
	// cosign the log's checkpoints. The quorum is more than half of them. Without
	// witnesses, deals are never CERTIFIED.
	Witnesses int
	// Env adds environment variables ("NAME=value"). The key "" applies to every process, a
	// kind to all replicas of the kind, and a name such as "deal-api-2" to one process. A name
	// takes precedence over a kind, and a kind over "".
	Env map[string][]string
	// Progress, if set, is called after each step of Start, with the duration of the step.
	// Calls may be concurrent.
	Progress func(step string, took time.Duration)
}

// Failure describes a process that ended before the stack stopped, killed or signalled it.
type Failure struct {
	Name string
	Err  error  // the exit error; nil if the exit status was 0
	Log  string // path of the process's log file
}

const (
	readyBound = 3 * time.Minute       // from exec to the first 200 of /readyz
	stopBound  = 35 * time.Second      // from SIGTERM to SIGKILL; longer than a binary takes to drain
	pollEvery  = 20 * time.Millisecond // pause between two requests of /readyz
	portTries  = 10                    // maximum number of tries of a process's first start; each try picks new ports
)
