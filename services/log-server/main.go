// Command log-server is a replica of the transparency log: it sequences and
// publishes what the private append port brings, and serves heads and proofs on
// the public read port. Any number of replicas may share one database.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

type config struct {
	DatabaseURL      string     `name:"database-url" env:"DATABASE_URL" help:"Postgres of the log, migrated by fairpactctl migrate."`
	SigningKey       string     `name:"signing-key" env:"FAIRPACT_SIGNING_KEY" help:"Deployment key that signs the heads, as a URI: file://key.pem, dev://FILE, …"`
	LegacyKeys       []string   `name:"legacy-keys" env:"FAIRPACT_LEGACY_KEYS" sep:"," help:"Retired public keys that still verify, <scheme>:<hex>, comma-separated."`
	ReadListen       string     `name:"read-listen" env:"FAIRPACT_READ_LISTEN" default:":8090" help:"Address of the public read port."`
	AppendListen     string     `name:"append-listen" env:"FAIRPACT_APPEND_LISTEN" default:":8091" help:"Address of the private append port."`
	AdminListen      string     `name:"admin-listen" env:"FAIRPACT_ADMIN_LISTEN" default:":8092" help:"Address of /healthz and /readyz."`
	AppendSecretFile string     `name:"append-secret-file" env:"FAIRPACT_APPEND_SECRET_FILE" type:"path" help:"File with the bearer secret of the append port, 16 bytes or more."`
	LogLevel         slog.Level `name:"log-level" env:"FAIRPACT_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
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

const (
	startTimeout = 15 * time.Second
	// drainTimeout is longer than an append may wait, and shorter than the grace
	// period of a pod.
	drainTimeout  = 28 * time.Second
	minSecretSize = 16
)

func main() {
	var c config
	kong.Parse(&c, kong.Name("log-server"), kong.Description("The transparency log of a Fairpact deployment."))
	logger := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, c, logger); err != nil {
		logger.Error("log-server stopped", "err", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, logger *slog.Logger) error {
	secret, err := readSecret(c.AppendSecretFile)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	signer, err := signing.Open(starting, c.SigningKey)
	if err != nil {
		return fmt.Errorf("open FAIRPACT_SIGNING_KEY: %w", err)
	}
	keys, err := signing.NewKeySet(signer.PublicKey(), c.LegacyKeys)
	if err != nil {
		return fmt.Errorf("read FAIRPACT_LEGACY_KEYS: %w", err)
	}
	pool, err := translog.OpenPool(starting, c.DatabaseURL)
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	log, err := translog.Open(starting, pool, signer, keys, logger)
	if err != nil {
		return err
	}
	defer log.Close()

	var draining atomic.Bool
	ready := func(ctx context.Context) error {
		if draining.Load() {
			return errors.New("stopping")
		}
		return log.Ready(ctx)
	}
	ports := []port{
		{"read", c.ReadListen, log.ReadHandler()},
		{"append", c.AppendListen, log.AppendHandler(secret)},
		{"admin", c.AdminListen, translog.AdminHandler(ready)},
	}
	logger.Info("signing key", "pubkey", signer.PublicKey(), "custody", signer.Custody(), "ephemeral", signer.Ephemeral())
	return serve(ctx, ports, func() { draining.Store(true) }, logger)
}

func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read FAIRPACT_APPEND_SECRET_FILE: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) < minSecretSize {
		return "", fmt.Errorf("FAIRPACT_APPEND_SECRET_FILE %s holds %d bytes: put %d random ones or more into it", path, len(text), minSecretSize)
	}
	return string(text), nil
}

type port struct {
	name, address string
	handler       http.Handler
}

// serve answers on all ports until ctx ends or one of them fails, then finishes
// the requests that are under way.
func serve(ctx context.Context, ports []port, drain func(), logger *slog.Logger) error {
	failed := make(chan error, len(ports))
	var servers []*http.Server
	for _, p := range ports {
		listener, err := net.Listen("tcp", p.address)
		if err != nil {
			return fmt.Errorf("listen on the %s port: %w", p.name, err)
		}
		defer listener.Close()
		server := &http.Server{
			Handler:           p.handler,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      40 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		}
		servers = append(servers, server)
		logger.Info("listening", "port", p.name, "address", listener.Addr().String())
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve the %s port: %w", p.name, err)
			}
		}()
	}
	var cause error
	select {
	case <-ctx.Done():
		logger.Info("draining")
	case cause = <-failed:
	}
	drain()
	finish, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	drained := make(chan error)
	for _, server := range servers {
		go func() {
			if err := server.Shutdown(finish); err != nil {
				drained <- fmt.Errorf("drain: %w", errors.Join(err, server.Close()))
				return
			}
			drained <- nil
		}()
	}
	for range servers {
		cause = errors.Join(cause, <-drained)
	}
	return cause
}
