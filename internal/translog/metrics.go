package translog

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/telemetry"
)

// Each replica reports the size that it last read. The largest value of all replicas
// is current.
var (
	sizes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_log_tree_size", Help: "Leaves of the log as this replica last read them: committed, or under the newest head (published), checkpoint (checkpoint) or checkpoint that met the witnesses' quorum (certified).",
	}, []string{"of"})
	sizeCommitted, sizePublished = sizes.WithLabelValues("committed"), sizes.WithLabelValues("published")

	batchEntries = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_log_batch_entries", Help: "Entries sequenced in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
	})
	appendDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_log_append_duration_seconds", Help: "Time from an append to a published head that covers it.", Buckets: telemetry.Seconds,
	})
	publishDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_log_publish_duration_seconds", Help: "Time to check, sign and store a head.", Buckets: telemetry.Seconds,
	})
	publishFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_publish_failures_total", Help: "Attempts to publish a head that failed; each is retried.",
	})
	proofFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_proof_failures_total", Help: "Contradictions found in the log; must stay 0.",
	})
	tagsTaken = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_second_certificates_total", Help: "Appends refused because the log has another certificate of the deal; must stay 0.",
	})
	guardRefusals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_guard_refusals_total", Help: "Heads that the fork guard refused: the database is older than, or differs from, what was signed.",
	})
)

var (
	checkpointSize, certifiedSize = sizes.WithLabelValues("checkpoint"), sizes.WithLabelValues("certified")

	checkpointFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_checkpoint_failures_total", Help: "Attempts to sign a checkpoint that failed; each is retried.",
	})
	witnessRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_log_witness_requests_total", Help: "Calls to witnesses by outcome: cosigned, conflict (409, answered with another proof), refused, invalid, unreachable.",
	}, []string{"witness", "outcome"})
	witnessBehind = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_log_witness_behind_seconds", Help: "Time since a witness was asked for a cosignature that it has not given; 0 if none is open. Only the replica that asks the witnesses reports this metric.",
	}, []string{"witness"})
	quorumBehind = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_log_quorum_behind_seconds", Help: "Time for which a checkpoint has waited for the quorum of its witnesses; 0 if none waits.",
	})
)

// registerMetrics registers the metrics of a log. A process that only has a client does
// not call it.
var registerMetrics = sync.OnceFunc(func() {
	prometheus.MustRegister(sizes, batchEntries, appendDuration, publishDuration, publishFailures, proofFailures, tagsTaken, guardRefusals,
		checkpointFailures, witnessRequests, witnessBehind, quorumBehind)
})
