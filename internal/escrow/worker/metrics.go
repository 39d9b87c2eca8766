package worker

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const measureEvery = 5 * time.Second

// Only the leading worker sets these gauges. relist sets lastRelist. measure sets the others
// every measureEvery, because a query at each scrape would delay the scrape while the
// database hangs.
var (
	running = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_deals", Help: "Deals that have not ended, by phase; COMMITTING includes those shown as OPEN.",
	}, []string{"state"})
	oldest = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_deals_oldest_age_seconds", Help: "Time since the oldest deal of the phase was created; 0 if there is none.",
	}, []string{"state"})
	overdue = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_deadline_overdue_seconds", Help: "Time since the oldest unprocessed step (deadline or draw) became due; 0 if no step is due. A draw may wait for its beacon.",
	}, []string{"step"})
	pending = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_certificates_pending", Help: "Pending certificates: the deal has ended, and its certificate is not published yet.",
	})
	pendingAge = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_certificates_pending_oldest_age_seconds", Help: "Time since the oldest pending certificate was written; 0 if there is none.",
	})
	lastRelist = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_deadline_last_relist_timestamp_seconds", Help: "Unix time of the last successful listing of due deals; 0 before the first success and on a standby.",
	})
)

// measure sets the gauges until ctx ends. Then it resets them, because a worker that no
// longer leads must show nothing.
func (c *Controller) measure(ctx context.Context) error {
	defer reset()
	c.every(ctx, measureEvery, measureEvery, "deals cannot be counted, retrying", func(ctx context.Context) (time.Duration, error) {
		l, err := c.rows.Load(ctx)
		if err == nil {
			show(l)
		}
		return 0, err
	})
	return nil
}

func show(l store.Load) {
	running.WithLabelValues(string(deal.Committing)).Set(float64(l.Committing))
	running.WithLabelValues(string(deal.Revealing)).Set(float64(l.Revealing))
	oldest.WithLabelValues(string(deal.Committing)).Set(l.CommittingAge)
	oldest.WithLabelValues(string(deal.Revealing)).Set(l.RevealingAge)
	overdue.WithLabelValues("deadline").Set(l.Overdue)
	overdue.WithLabelValues("draw").Set(l.DrawOverdue)
	pending.Set(float64(l.Pending))
	pendingAge.Set(l.PendingAge)
}

func reset() {
	running.Reset()
	oldest.Reset()
	overdue.Reset()
	pending.Set(0)
	pendingAge.Set(0)
	lastRelist.Set(0)
}
