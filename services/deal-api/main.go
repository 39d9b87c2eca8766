// Command deal-api serves the public port of Fairpact: REST and MCP. It is stateless, so
// any number of replicas may run.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/api/mcp"
	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/pages"
	"github.com/fairpact/fairpact/internal/api/rest"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow/wiring"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/platform/service"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/version"
)

type config struct {
	wiring.Config
	Listen         string        `env:"FAIRPACT_LISTEN" default:":8080" help:"Address of the public port."`
	TrustedProxies []string      `env:"FAIRPACT_TRUSTED_PROXIES" sep:"," help:"CIDRs of proxies whose X-Forwarded-For is believed."`
	PublicHosts    []string      `env:"FAIRPACT_PUBLIC_HOSTS" sep:"," help:"Host names, in addition to loopback, under which callers may reach /mcp, e.g. fairpact.example.com."`
	KeysPerMinute  int           `env:"FAIRPACT_KEYS_PER_MINUTE" default:"120" help:"Maximum number of new API keys a minute for one client network (an IPv4 address or an IPv6 /48). 0: no limit."`
	UnitsPerMinute int           `env:"FAIRPACT_DEAL_UNITS_PER_MINUTE" default:"1200" help:"Maximum cost, in units, of the deals that one API key may create in a minute. A deal costs 1 unit, plus 1 for each full 100 parties and 1 for each full 10 KiB of labels, seat keys, params, title and message. 0: no limit."`
	KeyMiB         int           `env:"FAIRPACT_KEY_MIB_PER_DAY" default:"2048" help:"Maximum storage, in MiB, that the new deals of one API key may reserve in a day: what params, title, message, labels, seat keys, seals, inputs and result of a deal can take at most. A deal of two parties reserves about 20 KiB. 0: no limit."`
	NetworkMiB     int           `env:"FAIRPACT_NETWORK_MIB_PER_DAY" default:"4096" help:"As FAIRPACT_KEY_MIB_PER_DAY, for all API keys together that create deals from one client network. 0: no limit."`
	MaxConnections int           `env:"FAIRPACT_MAX_CONNECTIONS" default:"8192" help:"Maximum number of open connections to the public port. Each takes 20 kB of the memory limit. At the limit, a new connection replaces one that waits for its client, of the network with the most connections. 0: no limit."`
	DrainDelay     time.Duration `env:"FAIRPACT_DRAIN_DELAY" default:"0s" help:"How long to keep serving after SIGTERM, while /readyz fails and load balancers remove this replica."`
}

func main() {
	var c config
	service.Main("deal-api", "REST and MCP of a Fairpact deployment.", &c, &c.LogLevel, func(ctx context.Context, logger *slog.Logger) error { return run(ctx, c, logger) })
}

func run(ctx context.Context, c config, logger *slog.Logger) error {
	proxies, err := networks(c.TrustedProxies)
	if err != nil {
		return fmt.Errorf("FAIRPACT_TRUSTED_PROXIES: %w", err)
	}
	memory, err := budget.NewProcess(c.MaxConnections)
	if err != nil {
		return err
	}
	parts, err := c.Open(ctx, "deal-api", logger)
	if err != nil {
		return err
	}
	defer parts.Close()
	defer parts.ServeWaits()()
	status := func() wire.Status {
		signs, others := parts.Keys.Status()
		s := wire.Status{
			Status: "ok", Service: "fairpact", Version: version.String(),
			PublicKey: signs, Custody: parts.Signer.Custody(signs), LegacyKeys: others, DevEphemeral: parts.Signer.Development(signs),
			Note: "neutral escrow for sealed-input computation; start with POST /v1/keys, the API is described at /openapi.json",
		}
		if c.ReadOnly {
			s.Note += "; in maintenance: every change is refused with READ_ONLY, reads are served, and deadlines still pass"
		}
		if s.DevEphemeral {
			s.Note += "; this deployment signs with a development key: its certificates prove nothing"
		}
		return s
	}
	shared := ops.Services{Escrow: parts.Escrow, Guard: parts.Guard,
		Callers: &caller.Policy{TrustedProxies: proxies, KeysPerMinute: c.KeysPerMinute, UnitsPerMinute: c.UnitsPerMinute, KeyMiB: c.KeyMiB, NetworkMiB: c.NetworkMiB, Limiter: parts.Redis}}
	signs, _ := parts.Keys.Status()
	deployment := docs.Deployment{Chain: parts.Escrow.Chain(), PublicURL: c.PublicURL, Development: parts.Signer.Development(signs)}
	tools, err := mcp.New(mcp.Config{
		Services: shared, Deployment: deployment, Version: version.Version, PublicHosts: c.PublicHosts, Logger: logger,
	})
	if err != nil {
		return err
	}
	api, err := rest.New(rest.Config{Services: shared, Status: status, KeySet: parts.Keys.Published, LogReadURL: c.LogReadURL, Pages: pages.Pages(deployment), MCP: tools, Budget: memory, Logger: logger})
	if err != nil {
		return err
	}
	public := service.Server(api, timelimits.Body, timelimits.Write, logger)
	// End runs after the port has closed, so that waiting callers retry at another replica.
	public.RegisterOnShutdown(parts.Waits.End)
	health := service.Health{Ready: parts.Ready, Admin: c.AdminListen, Delay: c.DrainDelay}
	return health.Serve(ctx, logger,
		service.Port{Name: "public", Address: c.Listen, Server: public, MaxConnections: c.MaxConnections, Proxies: shared.Callers.Trusts})
}

// networks parses CIDRs, but refuses those of all addresses: every caller could claim another's address.
func networks(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network: write address and length, such as 10.0.0.0/16", text)
		}
		if prefix.Bits() == 0 {
			return nil, fmt.Errorf("%s is every address, so any caller could forge X-Forwarded-For: name only the networks of your proxies", text)
		}
		all = append(all, prefix)
	}
	return all, nil
}
