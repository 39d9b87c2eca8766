// Command deadline-worker processes the deadlines of deals and finishes certificates whose
// issuing was interrupted. It is a controller-runtime manager. In a cluster a Lease elects one
// leading replica. The election only saves work, because several leaders do no harm.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairpact/fairpact/internal/escrow/wiring"
	"github.com/fairpact/fairpact/internal/escrow/worker"
	"github.com/fairpact/fairpact/internal/platform/service"
)

type config struct {
	wiring.Config
	Workers        int           `env:"FAIRPACT_WORKERS" default:"8" help:"Maximum number of deals that the worker processes at once."`
	LeaderElection bool          `env:"FAIRPACT_LEADER_ELECTION" help:"Elect one replica as the leader, with a Kubernetes Lease. This needs a Kubernetes API server."`
	LeaseName      string        `env:"FAIRPACT_LEASE_NAME" default:"fairpact-deadline-worker" help:"Name of the Lease. Each Fairpact deployment in a namespace needs a separate Lease."`
	LeaseNamespace string        `env:"FAIRPACT_LEASE_NAMESPACE" help:"Namespace of the Lease. Empty: the namespace of the pod."`
	Failover       time.Duration `env:"FAIRPACT_FAILOVER" default:"15s" help:"Longest time without a leader after the leader dies, from 5s to 1h."`
}

func main() {
	var c config
	kong.Parse(&c, kong.Name("deadline-worker"), kong.Description("The deadline worker of a Fairpact deployment."))
	service.Main("deadline-worker", c.LogLevel, func(ctx context.Context, logger *slog.Logger) error { return run(ctx, c, logger) })
}

func run(ctx context.Context, c config, logger *slog.Logger) error {
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	klog.SetSlogLogger(logger) // client-go, which renews the Lease, logs with klog
	parts, err := c.Open(ctx, "deadline-worker", logger)
	if err != nil {
		return err
	}
	defer parts.Close()
	mgr, err := newManager(c)
	if err != nil {
		return err
	}
	controller := worker.New(parts.Escrow, logger)
	if !c.ReadOnly { // in read-only mode the worker holds the Lease but processes no deals
		if err := controller.SetupWithManager(mgr, c.Workers); err != nil {
			return fmt.Errorf("controller: %w", err)
		}
	}
	health := service.NewHealth(func(ctx context.Context) error {
		if err := parts.Ready(ctx); err != nil {
			return err
		}
		if c.ReadOnly {
			return nil
		}
		select {
		case <-mgr.Elected():
			return controller.Ready()
		default:
			return nil // a standby is ready while it waits for the Lease
		}
	})
	// /metrics also serves controller-runtime's registry, which already has a Go collector and a
	// process collector. Duplicate metrics would make /metrics fail.
	prometheus.Unregister(collectors.NewGoCollector())
	prometheus.Unregister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	health.AddGatherer(runtimemetrics.Registry)
	health.KeySet, health.Secrets = parts.Keys.Digest(), parts.Secrets.Digest()
	return health.ServeBeside(ctx, logger, mgr.Start, service.Port{Name: "admin", Address: c.AdminListen, Server: health.AdminServer()})
}

// newManager returns a manager that uses an API server only for the Lease. Without leader
// election there may be no API server. The manager then gets an empty RESTMapper, and an address
// that it never calls.
func newManager(c config) (manager.Manager, error) {
	drain := service.DrainTimeout
	options := manager.Options{
		Metrics:                 metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: &drain,
	}
	if c.LeaderElection {
		cluster, err := ctrl.GetConfig()
		if err != nil {
			return nil, fmt.Errorf("FAIRPACT_LEADER_ELECTION is set, but the configuration for the Kubernetes API server cannot be read: %w; run in a pod with a service account token, set KUBECONFIG to a valid file, or unset FAIRPACT_LEADER_ELECTION", err)
		}
		if cluster.Proxy == nil { // HTTPS_PROXY is for addresses outside the cluster
			cluster.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
		}
		options.LeaderElection = true
		options.LeaderElectionID = c.LeaseName
		options.LeaderElectionNamespace = c.LeaseNamespace
		options.LeaderElectionReleaseOnCancel = true
		if err := c.election(&options); err != nil {
			return nil, err
		}
		return manager.New(cluster, options)
	}
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		return meta.NewDefaultRESTMapper(nil), nil
	}
	return manager.New(&rest.Config{Host: "http://127.0.0.1:1", Timeout: time.Second}, options)
}

// election divides the failover time into the three periods of the election. A standby
// reads the Lease at intervals of 1 to 2.2 retry periods, because client-go adds jitter. In the
// worst case the standby sees the leader's last renewal one interval late. The standby then
// waits for the lease duration, and notices the end of the Lease another interval late. The
// sum is at most 0.6 + 2 × 2.2/15 = 0.89 of the failover time. The rest is left for the calls
// to the API server.
func (c config) election(options *manager.Options) error {
	if c.Failover < 5*time.Second || c.Failover > time.Hour {
		return fmt.Errorf("FAIRPACT_FAILOVER is %s: set a time from 5s to 1h", c.Failover)
	}
	lease := (c.Failover * 3 / 5).Truncate(time.Second) // a Lease stores its duration in whole seconds
	renew, retry := c.Failover*2/5, c.Failover/15
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &lease, &renew, &retry
	return nil
}
