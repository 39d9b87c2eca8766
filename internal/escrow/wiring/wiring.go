// Package wiring builds the escrow from the settings of a deployment, for deal-api and
// deadline-worker.
package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/redis"
	"github.com/fairpact/fairpact/internal/platform/service"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// Config holds the settings that deal-api and deadline-worker share.
type Config struct {
	signing.Settings
	DatabaseURL      string `env:"DATABASE_URL" required:"" help:"Postgres URL. To create or update the schema, run fairpactctl migrate first."`
	DatabaseConns    int32  `env:"FAIRPACT_DATABASE_CONNS" default:"16" help:"Maximum number of connections from this process to Postgres, at least 4."`
	ReadOnly         bool   `env:"FAIRPACT_READ_ONLY" help:"Maintenance: refuse every change with READ_ONLY (503), and write nothing to the database or the log. Set this variable for deal-api, log-server and deadline-worker."`
	RedisURL         string `env:"REDIS_URL" required:"" help:"Redis URL. Redis holds best-effort locks and rate limits, and announces changed deals to the other processes."`
	ServerSecretFile string `env:"FAIRPACT_SERVER_SECRET_FILE" required:"" type:"path" help:"File with the server secrets, the same for all replicas of deal-api and deadline-worker. It holds one secret per line, at least 64 hex digits, the newest first. The database names the secret that encrypts new data."`
	AppendSecretFile string `env:"FAIRPACT_APPEND_SECRET_FILE" required:"" type:"path" help:"File with the bearer secret of log-server's append port. The process sends the first line."`
	LogReadURL       string `env:"FAIRPACT_LOG_READ_URL" required:"" help:"URL of log-server's read port."`
	LogAppendURL     string `env:"FAIRPACT_LOG_APPEND_URL" required:"" help:"URL of log-server's append port."`
	PublicURL        string `env:"FAIRPACT_PUBLIC_URL" help:"URL under which callers reach deal-api, e.g. https://fairpact.example.com. Invitations contain this URL, and seat keys sign it. Empty: invitations have no link, and seat keys are refused."`
	AdminListen      string `env:"FAIRPACT_ADMIN_LISTEN" default:":8082" help:"Address of the admin port, which serves /healthz, /readyz and /metrics."`

	BeaconRelays    []string      `env:"FAIRPACT_BEACON_RELAYS" sep:"," default:"https://api.drand.sh,https://api2.drand.sh,https://api3.drand.sh,https://drand.cloudflare.com" help:"drand relays, in the order in which they are asked. If a relay is slow, the next relay is asked too. If a relay fails, all others are asked. The first valid answer counts."`
	BeaconChainHash string        `env:"FAIRPACT_BEACON_CHAIN_HASH" help:"Hash of a beacon chain other than drand quicknet. Set the other FAIRPACT_BEACON_ variables of the chain too: the process starts only if the hash is that of their values."`
	BeaconPublicKey string        `env:"FAIRPACT_BEACON_PUBLIC_KEY" help:"Public key of the chain FAIRPACT_BEACON_CHAIN_HASH, in hex (BLS12-381 G2, compressed)."`
	BeaconPeriod    int64         `env:"FAIRPACT_BEACON_PERIOD" help:"Period of the chain FAIRPACT_BEACON_CHAIN_HASH: the seconds between two rounds."`
	BeaconSeed      string        `env:"FAIRPACT_BEACON_GENESIS_SEED" help:"Genesis seed of the chain FAIRPACT_BEACON_CHAIN_HASH: 64 hex digits."`
	BeaconID        string        `env:"FAIRPACT_BEACON_ID" help:"Beacon id of the chain FAIRPACT_BEACON_CHAIN_HASH, such as default."`
	BeaconGenesis   int64         `env:"FAIRPACT_BEACON_GENESIS" help:"Genesis of the chain FAIRPACT_BEACON_CHAIN_HASH: the unix time of the first round, in seconds."`
	EntropyWindow   time.Duration `env:"FAIRPACT_ENTROPY_WINDOW" default:"168h" help:"How long a random.v1 deal, or a deal with unopened timelock seals, waits for a beacon round that cannot be fetched, before the deal becomes EXPIRED. The wait starts at the reveal deadline or at the round's time, whichever is later."`
	StrictBeacon    bool          `env:"FAIRPACT_STRICT_BEACON" help:"Refuse new deals whose beacon round is published at or before the reveal deadline."`
	OpenUnits       int           `env:"FAIRPACT_OPEN_DEAL_UNITS" default:"10000" help:"Maximum cost, in units, of all deals of one API key that have not ended. The units are those of FAIRPACT_DEAL_UNITS_PER_MINUTE. Only deal-api applies this limit. 0: no limit."`

	KeepContents time.Duration `env:"FAIRPACT_KEEP_CONTENTS" default:"0s" help:"How long a deal keeps its params, title, message, inputs and seals after its end or its reveal_deadline, whichever is later; at least 24h. Then deadline-worker deletes them, but not while the certificate is pending. The deal, its result and its certificate stay. 0s: for ever."`

	LogLevel slog.Level `env:"FAIRPACT_LOG_LEVEL" default:"info" help:"Lowest level of the messages to log: debug, info, warn or error."`
}

// Parts are the escrow and its components.
type Parts struct {
	Escrow *escrow.Service
	Guard  *escrow.Guard
	Store  *store.Store
	Redis  *redis.Redis
	Waits  *waiting.Hub // ServeWaits runs it
	Signer *signing.Ring
	Keys   *signing.KeySet

	Secrets *sealing.Secrets

	watch    *signing.Watch
	endWatch context.CancelFunc
}

// Open checks the settings, connects to Postgres and returns the parts. Redis may be down. `binary`,
// such as deal-api, becomes part of the application_name in Postgres.
func (c *Config) Open(ctx context.Context, binary string, logger *slog.Logger) (*Parts, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	chain, err := drand.Quicknet(), error(nil)
	if c.BeaconChainHash != "" {
		if chain, err = drand.ParseChain(c.BeaconChainHash, c.BeaconPublicKey, c.BeaconPeriod, c.BeaconGenesis); err == nil {
			chain, err = chain.Bound(c.BeaconSeed, c.BeaconID)
		}
		if err != nil {
			return nil, fmt.Errorf("FAIRPACT_BEACON_CHAIN_HASH, FAIRPACT_BEACON_PUBLIC_KEY, FAIRPACT_BEACON_PERIOD, FAIRPACT_BEACON_GENESIS, FAIRPACT_BEACON_GENESIS_SEED or FAIRPACT_BEACON_ID: %w", err)
		}
	}
	if err := beacon.CheckRelays(c.BeaconRelays); err != nil {
		return nil, fmt.Errorf("FAIRPACT_BEACON_RELAYS: %w", err)
	}
	if c.EntropyWindow < time.Second {
		return nil, fmt.Errorf("FAIRPACT_ENTROPY_WINDOW is %s: set it to 1s or more", c.EntropyWindow)
	}
	if c.KeepContents != 0 && c.KeepContents < escrow.ReplayLifetime {
		return nil, fmt.Errorf("FAIRPACT_KEEP_CONTENTS is %s: set it to 24h or more, or to 0s", c.KeepContents)
	}
	if err := checkOrigin(c.PublicURL); err != nil {
		return nil, fmt.Errorf("FAIRPACT_PUBLIC_URL: %w", err)
	}
	for _, log := range []struct{ name, address string }{{"FAIRPACT_LOG_READ_URL", c.LogReadURL}, {"FAIRPACT_LOG_APPEND_URL", c.LogAppendURL}} {
		if err := translog.CheckURL(log.address); err != nil {
			return nil, fmt.Errorf("%s: %w", log.name, err)
		}
	}
	if c.DatabaseConns < database.MinConns {
		return nil, fmt.Errorf("FAIRPACT_DATABASE_CONNS is %d: set it to %d or more", c.DatabaseConns, database.MinConns)
	}
	secrets, err := sealing.Load(c.ServerSecretFile)
	if err != nil {
		return nil, fmt.Errorf("FAIRPACT_SERVER_SECRET_FILE: %w", err)
	}
	var log *translog.Client
	appendSecrets, appendSecretFile, err := service.AppendSecrets(c.AppendSecretFile, func(changed []string) { log.SetSecret(changed[0]) })
	if err != nil {
		return nil, err
	}
	p := &Parts{Secrets: secrets}
	if p.Signer, p.Keys, err = c.Settings.Open(ctx, logger); err != nil {
		return nil, err
	}
	redis.LogTo(logger)
	if p.Redis, err = redis.Open(c.RedisURL); err != nil {
		return nil, err
	}
	options := []database.Option{database.Named(func() string { return service.ApplicationName(binary, p.Keys.Digest(), secrets.Digest()) })}
	if service.ReadOnly(c.ReadOnly, logger); c.ReadOnly {
		options = append(options, database.ReadOnly)
	}
	if p.Store, err = store.Open(ctx, c.DatabaseURL, c.DatabaseConns, options...); err != nil {
		return nil, err
	}
	if err := secrets.Check(ctx, p.Store); err != nil {
		return nil, err
	}
	p.Waits = waiting.New(p.Store.Progress, p.Redis.Announce, logger)
	log = translog.NewClient(c.LogAppendURL, c.LogReadURL, appendSecrets[0])
	p.watch = signing.NewWatch(p.Keys)
	log.Check = p.watch.Check
	log.Trust(p.Keys)
	watching, end := context.WithCancel(context.Background())
	p.endWatch = end
	go p.watch.Run(watching, func(ctx context.Context) error {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		// Check switches to the server secret that is now in force. The error is ignored here,
		// because Parts.Ready runs Check too and reports the error.
		_ = secrets.Check(asking, p.Store)
		_, err := log.TreeHead(ctx)
		return err
	})
	go service.Follow(watching, logger, p.Store.Reconnect,
		c.Settings.Follow(p.Signer, func(context.Context, keys.List) error { return nil }),
		service.File{Setting: "FAIRPACT_SERVER_SECRET_FILE", Path: c.ServerSecretFile, Use: func(ctx context.Context, text []byte) (bool, error) {
			changed, err := sealing.Parse(c.ServerSecretFile, text)
			if err != nil || changed.Digest() == secrets.Digest() {
				return false, err
			}
			return true, secrets.Replace(ctx, p.Store, changed)
		}},
		appendSecretFile)
	relays := beacon.NewClient(chain, c.BeaconRelays)
	p.Guard = escrow.NewGuard(p.Store, p.Redis, secrets)
	p.Escrow = escrow.New(p.Store, secrets, p.Signer, p.Keys, log, relays,
		escrow.Options{EntropyWindow: c.EntropyWindow, StrictBeacon: c.StrictBeacon, OpenUnits: c.OpenUnits, KeepContents: c.KeepContents, Waits: p.Waits, PublicURL: c.PublicURL, ReadOnly: c.ReadOnly, Development: p.Signer.Development}, logger)
	signs, _ := p.Keys.Status()
	logger.Info("signing key", "pubkey", signs, "custody", p.Signer.Custody(signs), "ephemeral", p.Signer.Development(signs))
	return p, nil
}

// ServeWaits runs Waits until stop is called.
func (p *Parts) ServeWaits() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { p.Waits.Run(ctx) })
	loops.Go(func() { p.Redis.Listen(ctx, p.Waits.NotifyLocal, p.Waits.SetConnected) })
	return func() {
		cancel()
		loops.Wait()
	}
}

// Ready returns an error in any of these cases:
//   - log-server signs with a key that this process does not accept;
//   - the database does not answer; the error then wraps database.ErrNoAnswer;
//   - the database's schema is too old;
//   - this process lacks a server secret that sealing.Secrets.Check requires;
//   - the clocks of the database and this process differ too much.
func (p *Parts) Ready(ctx context.Context) error {
	if err := p.watch.Ready(); err != nil {
		return service.Because("keys", err)
	}
	if err := p.Store.Ready(ctx); err != nil {
		return err
	}
	if err := p.Secrets.Check(ctx, p.Store); err != nil {
		return service.Because("secret", err)
	}
	now, err := p.Store.Now(ctx)
	if err == nil {
		err = service.Because("clock", p.Keys.CheckClock(now))
	}
	return err
}

// Close stops the key watch and closes all connections.
func (p *Parts) Close() {
	p.endWatch()
	p.Store.Close()
	_ = p.Redis.Close()
	_ = p.Signer.Close()
}

var hostForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)

// checkOrigin accepts an empty address, or an origin in the form that browsers send: scheme
// and host in lower case, no default port, no path and no slash at the end. Seat keys sign
// the text of the origin, so only one form is valid.
func checkOrigin(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || address != u.Scheme+"://"+strings.ToLower(u.Host) {
		return fmt.Errorf("%q is not an origin: write https://HOST or https://HOST:PORT, in lower case, without a slash or path at the end", address)
	}
	if _, notIP := netip.ParseAddr(u.Hostname()); notIP != nil && !hostForm.MatchString(u.Hostname()) || !certificate.ValidOrigin(address) {
		return fmt.Errorf("the host of %q is invalid: use only ASCII letters, digits, dots and hyphens, at most 255 characters. Write an international name in its xn-- form", address)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0 || strconv.FormatUint(n, 10) != u.Port()) {
		return fmt.Errorf("the port of %q is invalid: write a number from 1 to 65535 without leading zeros", address)
	}
	if port := u.Port(); strings.HasSuffix(u.Host, ":") || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return fmt.Errorf("%q has an empty port or the default port of its scheme: leave the port out", address)
	}
	return nil
}
