// Command log-server is a replica of the transparency log. It has a private append port and a
// public read port. Any number of replicas may share a database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/service"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

type config struct {
	signing.Settings
	DatabaseURL       string        `env:"DATABASE_URL" required:"" help:"Postgres URL of the log. To create or update the schema, run fairpactctl migrate first."`
	DatabaseConns     int32         `env:"FAIRPACT_DATABASE_CONNS" default:"8" help:"Maximum number of connections from this process to Postgres, at least 4."`
	ReadOnly          bool          `env:"FAIRPACT_READ_ONLY" help:"Maintenance: refuse appends with READ_ONLY (503). Leaves that are in the log already are still published."`
	ReadListen        string        `env:"FAIRPACT_READ_LISTEN" default:":8090" help:"Address of the public read port."`
	AppendListen      string        `env:"FAIRPACT_APPEND_LISTEN" default:":8091" help:"Address of the private append port."`
	AdminListen       string        `env:"FAIRPACT_ADMIN_LISTEN" default:":8092" help:"Address of the admin port, which serves /healthz, /readyz and /metrics."`
	AppendSecretFile  string        `env:"FAIRPACT_APPEND_SECRET_FILE" required:"" type:"path" help:"File with the bearer secrets of the append port: one per line, at least 16 bytes each. log-server accepts each of these secrets."`
	ForkGuard         string        `env:"FAIRPACT_FORK_GUARD" help:"URI of the fork guard, which keeps a record of the largest signed head outside the database: file://PATH (only for a single log-server), kubernetes://NAMESPACE/NAME (a ConfigMap) or postgres://… (a database of its own, also for several clusters). Empty: no fork guard, which a log that has one refuses."`
	ForkGuardInit     *int64        `env:"FAIRPACT_FORK_GUARD_INIT" help:"Set this only if the record of the fork guard is lost and you know that the database is complete. The value is the tree size of the newest published head. The guard then accepts the database only if that head has exactly this size, and if the log has no other guard."`
	MaxConnections    int           `env:"FAIRPACT_MAX_CONNECTIONS" default:"8192" help:"Maximum number of open connections to the read port, and to the append port. At the limit, a new connection replaces one that waits for its client, of the network with the most connections. 0: no limit."`
	LogKey            string        `env:"FAIRPACT_LOG_KEY" help:"URI of the Ed25519 key that signs checkpoints: file://PATH (PEM, PKCS#8), dev://PATH (a development key), or a key in a KMS or HSM (gcpkms://, awskms://, pkcs11:). Empty: no checkpoints and no tiles."`
	LogOrigin         string        `env:"FAIRPACT_LOG_ORIGIN" help:"Permanent name of the log, and of the log keys, in checkpoints: the public URL without scheme, such as fairpact.example.com."`
	LogRetiredKeys    []string      `env:"FAIRPACT_LOG_RETIRED_KEYS" sep:"," help:"Verifier keys (vkeys) of former log keys, comma-separated."`
	WitnessPolicyFile string        `env:"FAIRPACT_WITNESS_POLICY_FILE" type:"path" help:"File with the trust policy (c2sp.org/tlog-policy), which names the witnesses to ask and the quorum that makes deals CERTIFIED. Empty: no witnesses."`
	DrainDelay        time.Duration `env:"FAIRPACT_DRAIN_DELAY" default:"0s" help:"How long to keep serving after SIGTERM, while /readyz fails and load balancers remove this replica."`
	LogLevel          slog.Level    `env:"FAIRPACT_LOG_LEVEL" default:"info" help:"Lowest level of the messages to log: debug, info, warn or error."`
}

const startTimeout = 15 * time.Second

func main() {
	var c config
	service.Main("log-server", "The transparency log of a Fairpact deployment.", &c, &c.LogLevel, func(ctx context.Context, logger *slog.Logger) error { return run(ctx, c, logger) })
}

func run(ctx context.Context, c config, logger *slog.Logger) error {
	if c.DatabaseConns < database.MinConns {
		return fmt.Errorf("FAIRPACT_DATABASE_CONNS is %d: set it to %d or more", c.DatabaseConns, database.MinConns)
	}
	var accepted atomic.Pointer[[]string]
	secrets, appendSecretFile, err := service.AppendSecrets(c.AppendSecretFile, func(changed []string) { accepted.Store(&changed) })
	if err != nil {
		return err
	}
	accepted.Store(&secrets)
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	signer, keySet, err := c.Settings.Open(starting, logger)
	if err != nil {
		return err
	}
	defer func() { _ = signer.Close() }()
	pool, err := database.Open(starting, c.DatabaseURL, c.DatabaseConns, database.Named(func() string { return service.ApplicationName("log-server", keySet.Digest(), "") }))
	if err != nil {
		return err
	}
	defer database.Close(pool)
	service.ReadOnly(c.ReadOnly, logger)
	options := translog.Options{ReadOnly: c.ReadOnly, Adopt: c.ForkGuardInit}
	if c.ForkGuard == "" {
		logger.Warn("no fork guard, so the log would fork after a restore of an old backup: set FAIRPACT_FORK_GUARD to file://PATH, kubernetes://NAMESPACE/NAME or postgres://…")
	} else {
		if options.Guard, err = forkguard.Open(c.ForkGuard); err != nil {
			return fmt.Errorf("FAIRPACT_FORK_GUARD: %w", err)
		}
		defer options.Guard.Close()
	}
	if options.Checkpoints, err = c.checkpoints(starting, logger); err != nil {
		return err
	}
	if options.Checkpoints != nil {
		defer func() { _ = options.Checkpoints.Key.Close() }()
	}
	signs, _ := keySet.Status()
	logger.Info("signing key", "pubkey", signs, "custody", signer.Custody(signs), "ephemeral", signer.Development(signs))
	closed := func(ctx context.Context, set keys.List) error {
		return translog.CheckClosed(ctx, pool, set, closedHeads)
	}
	if err := closed(starting, keySet.Keys()); err != nil {
		return err
	}
	l, err := translog.Open(starting, pool, signer, keySet, logger, options)
	if err != nil {
		return err
	}
	defer l.Close()
	following, end := context.WithCancel(context.Background())
	defer end()
	go service.Follow(following, logger, pool.Reset, c.Settings.Follow(signer, closed),
		appendSecretFile)
	ready := func(ctx context.Context) error {
		now, err := database.Now(ctx, pool)
		if err == nil {
			err = service.Because("clock", keySet.CheckClock(now))
		}
		if err != nil {
			return err
		}
		return service.Because("log", l.Ready(ctx))
	}
	server := func(h http.Handler) *http.Server {
		// 40 s is longer than timelimits.Append.
		return service.Server(h, 10*time.Second, 40*time.Second, logger)
	}
	health := service.Health{Ready: ready, Admin: c.AdminListen, Delay: c.DrainDelay}
	return health.Serve(ctx, logger,
		service.Port{Name: "read", Address: c.ReadListen, Server: server(keySet.Announce(l.ReadHandler())), MaxConnections: c.MaxConnections},
		service.Port{Name: "append", Address: c.AppendListen, Server: server(keySet.Announce(l.AppendHandler(func() []string { return *accepted.Load() }))), MaxConnections: c.MaxConnections})
}

// checkpoints returns nil without an error if the log publishes no checkpoints.
func (c *config) checkpoints(ctx context.Context, logger *slog.Logger) (*translog.Checkpoints, error) {
	if c.LogKey == "" && c.LogOrigin == "" {
		if c.WitnessPolicyFile != "" {
			return nil, errors.New("FAIRPACT_WITNESS_POLICY_FILE is set, but this log publishes no checkpoints for witnesses to cosign: set FAIRPACT_LOG_KEY and FAIRPACT_LOG_ORIGIN too")
		}
		logger.Warn("no checkpoints and no tiles, so nobody can mirror the log: set FAIRPACT_LOG_KEY and FAIRPACT_LOG_ORIGIN")
		return nil, nil
	}
	if c.LogKey == "" || c.LogOrigin == "" {
		return nil, errors.New("only one of FAIRPACT_LOG_KEY and FAIRPACT_LOG_ORIGIN is set: set both or neither")
	}
	config := &translog.Checkpoints{Origin: c.LogOrigin}
	for _, vkey := range c.LogRetiredKeys {
		key, err := checkpoint.ParseKey(vkey)
		if err != nil {
			return nil, fmt.Errorf("FAIRPACT_LOG_RETIRED_KEYS: %w", err)
		}
		config.Retired = append(config.Retired, key)
	}
	if err := c.readPolicy(config); err != nil {
		return nil, fmt.Errorf("FAIRPACT_WITNESS_POLICY_FILE: %w", err)
	}
	var err error
	if config.Key, err = signing.OpenLogKey(ctx, c.LogKey); err != nil {
		return nil, fmt.Errorf("FAIRPACT_LOG_KEY: %w", err)
	}
	return config, nil
}

func (c *config) readPolicy(config *translog.Checkpoints) (err error) {
	if c.WitnessPolicyFile == "" {
		return nil
	}
	if config.PolicyText, err = os.ReadFile(c.WitnessPolicyFile); err != nil {
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

// closedHeads is how many heads translog.CheckClosed checks for each closed key, in 0.1 ms each.
// Later heads need no check: a key that signed one signed these too.
const closedHeads = 1000
