// Command log-server is a replica of the transparency log: it sequences and
// publishes what the private append port brings, has witnesses cosign it, and
// serves heads, proofs, checkpoints and tiles on the public read port. Any number of replicas may share one database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/forkguard"
	"github.com/fairpact/fairpact/internal/keywatch"
	"github.com/fairpact/fairpact/internal/service"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

type config struct {
	signing.Settings
	DatabaseURL      string        `name:"database-url" env:"DATABASE_URL" help:"Postgres of the log, migrated by fairpactctl migrate."`
	DatabaseConns    int32         `name:"database-conns" env:"FAIRPACT_DATABASE_CONNS" default:"8" help:"Most connections to Postgres of this process, 4 or more."`
	ReadOnly         bool          `name:"read-only" env:"FAIRPACT_READ_ONLY" help:"Maintenance: refuse appends with READ_ONLY (503). Leaves that are in the log are still published."`
	ReadListen       string        `name:"read-listen" env:"FAIRPACT_READ_LISTEN" default:":8090" help:"Address of the public read port."`
	AppendListen     string        `name:"append-listen" env:"FAIRPACT_APPEND_LISTEN" default:":8091" help:"Address of the private append port."`
	AdminListen      string        `name:"admin-listen" env:"FAIRPACT_ADMIN_LISTEN" default:":8092" help:"Address of /healthz, /readyz and /metrics."`
	AppendSecretFile string        `name:"append-secret-file" env:"FAIRPACT_APPEND_SECRET_FILE" type:"path" help:"File with the bearer secret of the append port, 16 bytes or more; each line is accepted."`
	ForkGuard        string        `name:"fork-guard" env:"FAIRPACT_FORK_GUARD" help:"Record of the biggest head ever signed, apart from the database: file://PATH (one log-server) or kubernetes://NAMESPACE/NAME (a ConfigMap). Empty: none."`
	ForkGuardInit    *int64        `name:"fork-guard-init" env:"FAIRPACT_FORK_GUARD_INIT" help:"By hand, where the guard's record is lost and the database is known to be whole: the size of the newest published head. An empty guard takes the database's word at that size and no other."`
	MaxConnections   int           `name:"max-connections" env:"FAIRPACT_MAX_CONNECTIONS" default:"8192" help:"Open connections of the read port, of which one address may hold half; 0: no limit."`
	LogKey           string        `name:"log-key" env:"FAIRPACT_LOG_KEY" help:"Ed25519 key that signs checkpoints: file://PATH (PEM, PKCS#8) or dev://PATH. Empty: no checkpoints and no tiles."`
	LogOrigin        string        `name:"log-origin" env:"FAIRPACT_LOG_ORIGIN" help:"Name of the log and its keys in checkpoints, for ever: the public URL without scheme, such as fairpact.example.com."`
	LogRetiredKeys   []string      `name:"log-retired-keys" env:"FAIRPACT_LOG_RETIRED_KEYS" sep:"," help:"Verifier keys (vkeys) of log keys that signed before, comma-separated."`
	WitnessPolicy    string        `name:"witness-policy-file" env:"FAIRPACT_WITNESS_POLICY_FILE" type:"path" help:"Trust policy (c2sp.org/tlog-policy): the witnesses to ask, and the quorum by which deals become CERTIFIED. Empty: no witnesses."`
	DrainDelay       time.Duration `name:"drain-delay" env:"FAIRPACT_DRAIN_DELAY" default:"0s" help:"After SIGTERM, not ready any more: how long to serve on, so that load balancers take note."`
	LogLevel         slog.Level    `name:"log-level" env:"FAIRPACT_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
}

// Validate names what is missing by its environment name, which is how it is
// set where it matters.
func (c *config) Validate() error {
	for _, required := range []struct{ name, value string }{
		{"DATABASE_URL", c.DatabaseURL},
		{"FAIRPACT_APPEND_SECRET_FILE", c.AppendSecretFile},
	} {
		if required.value == "" {
			return fmt.Errorf("%s is not set; log-server --help tells what it is", required.name)
		}
	}
	if c.DatabaseConns < database.MinConns {
		return fmt.Errorf("FAIRPACT_DATABASE_CONNS is %d; give %d or more", c.DatabaseConns, database.MinConns)
	}
	return nil
}

const startTimeout = 15 * time.Second

func main() {
	var c config
	kong.Parse(&c, kong.Name("log-server"), kong.Description("The transparency log of a Fairpact deployment."))
	service.Main("log-server", c.LogLevel, func(ctx context.Context, logger *slog.Logger) error { return run(ctx, c, logger) })
}

func run(ctx context.Context, c config, logger *slog.Logger) error {
	secrets, err := service.ReadSecrets("FAIRPACT_APPEND_SECRET_FILE", c.AppendSecretFile)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	signer, keys, err := c.Settings.Open(starting, logger)
	if err != nil {
		return err
	}
	defer func() { _ = signer.Close() }()
	database.Application = keywatch.Name("log-server", keys, "")
	pool, err := database.Open(starting, c.DatabaseURL, c.DatabaseConns)
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer database.Close(pool)
	var options []translog.Option
	if service.ReadOnly(c.ReadOnly, logger); c.ReadOnly {
		options = append(options, translog.ReadOnly)
	}
	if c.ForkGuard == "" {
		logger.Warn("no fork guard: a database restored from a backup would be signed; set FAIRPACT_FORK_GUARD")
	} else {
		guard, err := forkguard.Open(c.ForkGuard)
		if err != nil {
			return fmt.Errorf("FAIRPACT_FORK_GUARD: %w", err)
		}
		defer guard.Close()
		options = append(options, translog.WithGuard(guard, c.ForkGuardInit))
	}
	publishing, logKey, err := c.checkpoints(starting, keys, logger)
	if err != nil {
		return err
	}
	if publishing != nil {
		defer func() { _ = logKey.Close() }()
		options = append(options, publishing)
	}
	logger.Info("signing key", "pubkey", keys.Current(), "custody", signer.Custody(), "ephemeral", signer.Ephemeral())
	if err := translog.CheckClosed(starting, pool, keys.Keys(), closedHeads); err != nil {
		return err
	}
	l, err := translog.Open(starting, pool, signer, keys, logger, options...)
	if err != nil {
		return err
	}
	defer l.Close()
	health := service.NewHealth(func(ctx context.Context) error {
		now, err := database.Now(ctx, pool)
		if err == nil {
			err = keys.CheckClock(now)
		}
		if err != nil {
			return err
		}
		return l.Ready(ctx)
	})
	health.KeySet = keys.Digest()
	health.Delay = c.DrainDelay
	return health.Serve(ctx, logger,
		service.Port{Name: "admin", Address: c.AdminListen, Server: health.AdminServer()},
		service.Port{Name: "read", Address: c.ReadListen, Server: server(keywatch.Tell(keys, l.ReadHandler()), logger), MaxConnections: c.MaxConnections},
		service.Port{Name: "append", Address: c.AppendListen, Server: server(keywatch.Tell(keys, l.AppendHandler(secrets...)), logger)})
}

// checkpoints opens the log key and reads the witness policy; nil where the log
// publishes no checkpoints.
func (c *config) checkpoints(ctx context.Context, keys *signing.KeySet, logger *slog.Logger) (translog.Option, *signing.LogKey, error) {
	if c.LogKey == "" && c.LogOrigin == "" {
		if c.WitnessPolicy != "" {
			return nil, nil, errors.New("FAIRPACT_WITNESS_POLICY_FILE is set: witnesses cosign checkpoints, set FAIRPACT_LOG_KEY and FAIRPACT_LOG_ORIGIN too")
		}
		logger.Warn("no checkpoints and no tiles: nobody can mirror the log; set FAIRPACT_LOG_KEY and FAIRPACT_LOG_ORIGIN")
		return nil, nil, nil
	}
	if c.LogKey == "" || c.LogOrigin == "" {
		return nil, nil, errors.New("FAIRPACT_LOG_KEY and FAIRPACT_LOG_ORIGIN belong together: set both or neither")
	}
	config := translog.Checkpoints{Origin: c.LogOrigin, Keys: keys.Keys}
	for _, vkey := range c.LogRetiredKeys {
		key, err := checkpoint.ParseKey(vkey)
		if err != nil {
			return nil, nil, fmt.Errorf("FAIRPACT_LOG_RETIRED_KEYS: %w", err)
		}
		config.Retired = append(config.Retired, key)
	}
	if err := c.readPolicy(&config); err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_WITNESS_POLICY_FILE: %w", err)
	}
	key, err := signing.OpenLogKey(ctx, c.LogKey)
	if err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_LOG_KEY: %w", err)
	}
	config.Key = key
	option, err := translog.WithCheckpoints(config)
	if err != nil {
		_ = key.Close()
		return nil, nil, fmt.Errorf("checkpoints: %w", err)
	}
	vkey, err := checkpoint.Ed25519Key(c.LogOrigin, key.Public())
	logger.Info("log key", "vkey", vkey.String(), "custody", key.Custody())
	return option, key, err
}

func (c *config) readPolicy(config *translog.Checkpoints) (err error) {
	if c.WitnessPolicy == "" {
		return nil
	}
	if config.PolicyText, err = os.ReadFile(c.WitnessPolicy); err != nil {
		return err
	}
	if config.Policy, err = checkpoint.ParsePolicy(config.PolicyText); err != nil {
		return err
	}
	for _, w := range config.Policy.Witnesses {
		if w.URL == "" {
			continue
		}
		if err := translog.CheckWitnessURL(w.URL); err != nil {
			return fmt.Errorf("witness %s: %w", w.Name, err)
		}
	}
	return nil
}

// closedHeads is how many heads above the tree size of a closed key are checked
// at the start, 0.1 ms each: a key that went on signing signed the first of them.
const closedHeads = 1000

// server bounds what a slow client can hold; an append may wait for its head.
func server(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      40 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
