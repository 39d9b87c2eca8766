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

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairpact/fairpact/internal/escrow/wiring"
	"github.com/fairpact/fairpact/internal/escrow/worker"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/service"
)

type config struct {
	wiring.Config
	Lease string `env:"FAIRPACT_LEASE" help:"Name of the Kubernetes Lease, in the namespace of the pod, by which the replicas elect a leader. Each Fairpact deployment in a namespace needs a separate Lease. Empty: no election, so every replica works."`
}

func main() {
	var c config
	service.Main("deadline-worker", "The deadline worker of a Fairpact deployment.", &c, &c.LogLevel, func(ctx context.Context, logger *slog.Logger) error { return run(ctx, c, logger) })
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
	memory, err := budget.NewWorker()
	if err != nil {
		return err
	}
	controller := worker.New(parts.Escrow, parts.Store, memory, c.KeepContents, logger)
	if !c.ReadOnly { // in read-only mode the worker holds the Lease but processes no deals
		if err := controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("controller: %w", err)
		}
	}
	ready := func(ctx context.Context) error {
		if err := parts.Ready(ctx); err != nil {
			return err
		}
		if c.ReadOnly {
			return nil
		}
		select {
		case <-mgr.Elected():
			return service.Because("worker", controller.Ready())
		default:
			return nil // a standby is ready while it waits for the Lease
		}
	}
	health := service.Health{Ready: ready, Admin: c.AdminListen, Work: mgr.Start}
	return health.Serve(ctx, logger)
}

// The three periods of the election. A standby reads the Lease at intervals of 1 to 2.2 retry
// periods, because client-go adds jitter. In the worst case it sees the last renewal of a dead
// leader, and the end of the Lease, one interval late each: 13.4 s without a leader.
var lease, renew, retry = 9 * time.Second, 6 * time.Second, time.Second

// newManager returns a manager that uses an API server only for the Lease. Without a Lease it
// calls no API server, so there may be none.
func newManager(c config) (manager.Manager, error) {
	drain := service.DrainTimeout
	options := manager.Options{Metrics: metrics.Options{BindAddress: "0"}, GracefulShutdownTimeout: &drain}
	if c.Lease == "" {
		return manager.New(&rest.Config{}, options)
	}
	cluster, err := apiServer()
	if err != nil {
		return nil, err
	}
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionReleaseOnCancel = true, c.Lease, true
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &lease, &renew, &retry
	return manager.New(cluster, options)
}

func apiServer() (*rest.Config, error) {
	cluster, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("FAIRPACT_LEASE is set, but the configuration for the Kubernetes API server cannot be read: %w; run in a pod with a service account token, or unset FAIRPACT_LEASE", err)
	}
	if cluster.Proxy == nil { // HTTPS_PROXY is for addresses outside the cluster
		cluster.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return cluster, nil
}
