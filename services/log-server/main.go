// Command log-server is a replica of the transparency log: it sequences and
// publishes what the private append port brings, and serves heads and proofs on
// the public read port. Any number of replicas may share one database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/forkguard"
	"github.com/fairpact/fairpact/internal/replica"
	"github.com/fairpact/fairpact/internal/service"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

type config struct {
	signing.Settings
	DatabaseURL      string        `name:"database-url" env:"DATABASE_URL" help:"Postgres of the log, migrated by fairpactctl migrate."`
	ReadListen       string        `name:"read-listen" env:"FAIRPACT_READ_LISTEN" default:":8090" help:"Address of the public read port."`
	AppendListen     string        `name:"append-listen" env:"FAIRPACT_APPEND_LISTEN" default:":8091" help:"Address of the private append port."`
	AdminListen      string        `name:"admin-listen" env:"FAIRPACT_ADMIN_LISTEN" default:":8092" help:"Address of /healthz, /readyz and /metrics."`
	AppendSecretFile string        `name:"append-secret-file" env:"FAIRPACT_APPEND_SECRET_FILE" type:"path" help:"File with the bearer secret of the append port, 16 bytes or more."`
	ForkGuard        string        `name:"fork-guard" env:"FAIRPACT_FORK_GUARD" help:"Record of the biggest head ever signed, apart from the database: file://PATH (one log-server) or kubernetes://NAMESPACE/NAME (a ConfigMap). Empty: none."`
	ForkGuardInit    *int64        `name:"fork-guard-init" env:"FAIRPACT_FORK_GUARD_INIT" help:"By hand, where the guard's record is lost and the database is known to be whole: the size of the newest published head. An empty guard takes the database's word at that size and no other."`
	DrainDelay       time.Duration `name:"drain-delay" env:"FAIRPACT_DRAIN_DELAY" default:"0s" help:"After SIGTERM, not ready any more: how long to serve on, so that load balancers take note."`
	LogLevel         slog.Level    `name:"log-level" env:"FAIRPACT_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
}

// Validate names what is missing by its environment name, which is how it is
// set where it matters.
func (c *config) Validate() error {
	for _, required := range []struct{ name, value string }{
		{"DATABASE_URL", c.DatabaseURL},
		{"FAIRPACT_SIGNING_KEY", c.SigningKey},
		{"FAIRPACT_APPEND_SECRET_FILE", c.AppendSecretFile},
	} {
		if required.value == "" {
			return fmt.Errorf("%s is not set; log-server --help tells what it is", required.name)
		}
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
	secret, err := service.ReadSecret("FAIRPACT_APPEND_SECRET_FILE", c.AppendSecretFile)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	signer, keys, err := c.Settings.Open(starting)
	if err != nil {
		return err
	}
	defer func() { _ = signer.Close() }()
	pool, err := database.Open(starting, c.DatabaseURL, 0)
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer database.Close(pool)
	var options []translog.Option
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
	gate, err := replica.Open(starting, c.DatabaseURL, "log-server", signer, keys, logger)
	if err != nil {
		return err
	}
	defer gate.Close()
	logger.Info("signing key", "pubkey", signer.PublicKey(), "custody", signer.Custody(), "ephemeral", signer.Ephemeral())
	var log atomic.Pointer[translog.Log]
	health := service.NewHealth(func(ctx context.Context) error {
		if err := gate.Ready(); err != nil {
			return err
		}
		if l := log.Load(); l != nil {
			return l.Ready(ctx)
		}
		return errors.New("starting")
	})
	health.Delay = c.DrainDelay
	if err := health.Open(logger, service.Port{Name: "admin", Address: c.AdminListen, Server: health.AdminServer()}); err != nil {
		return err
	}
	// Heads and signatures are read with a key set that fits the others', or not
	// at all: a head under an unknown key would look like a contradiction.
	if !gate.Passed(ctx) {
		return nil
	}
	opening, done := context.WithTimeout(ctx, startTimeout)
	defer done()
	l, err := translog.Open(opening, pool, gate, keys, logger, options...)
	if err != nil {
		return err
	}
	defer l.Close()
	log.Store(l)
	return health.Serve(ctx, logger,
		service.Port{Name: "read", Address: c.ReadListen, Server: server(l.ReadHandler(), logger)},
		service.Port{Name: "append", Address: c.AppendListen, Server: server(l.AppendHandler(secret), logger)})
}

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
