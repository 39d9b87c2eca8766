package translog

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/platform/telemetry"
)

var (
	// The current size is the largest value of all replicas.
	sizes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_log_tree_size", Help: "Number of leaves when this replica last read it. committed: all leaves; published: leaves under the newest head; checkpoint: leaves under the newest checkpoint; certified: leaves under the newest checkpoint that met the witnesses' quorum.",
	}, []string{"of"})
	sizeCommitted, sizePublished = sizes.WithLabelValues("committed"), sizes.WithLabelValues("published")

	batchEntries = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_log_batch_entries", Help: "Entries sequenced in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
	})
	appendDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_log_append_duration_seconds", Help: "Time from an append until a published head covers the leaf.", Buckets: telemetry.Seconds,
	})
	publishDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_log_publish_duration_seconds", Help: "Time to check, sign and store a head.", Buckets: telemetry.Seconds,
	})
	publishFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_publish_failures_total", Help: "Failed attempts to publish a head; each is retried.",
	})
	proofFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_proof_failures_total", Help: "Contradictions found in the log; must stay 0.",
	})
	tagsTaken = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_second_certificates_total", Help: "Appends refused because the log has another certificate of the deal; must stay 0.",
	})
	guardRefusals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_guard_refusals_total", Help: "Heads that the fork guard refused: the database is older than what was signed or has another history, or the guard has no record.",
	})

	checkpointSize, certifiedSize = sizes.WithLabelValues("checkpoint"), sizes.WithLabelValues("certified")

	checkpointFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairpact_log_checkpoint_failures_total", Help: "Failed attempts to sign a checkpoint; each is retried.",
	})
	witnessRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairpact_log_witness_requests_total", Help: "Calls to witnesses by outcome: cosigned, conflict (status 409: the log then sends another proof), refused, invalid, unreachable.",
	}, []string{"witness", "outcome"})
	witnessBehind = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairpact_log_witness_behind_seconds", Help: "Time for which a witness has owed a cosignature; 0 if it owes none. Only the replica that asks the witnesses reports this metric.",
	}, []string{"witness"})
	quorumBehind = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fairpact_log_quorum_behind_seconds", Help: "Time for which a checkpoint has waited for the quorum of its witnesses; 0 if no checkpoint waits.",
	})
)

// registerMetrics is called only by Open, so that a process with a Client serves no metrics of a log.
var registerMetrics = sync.OnceFunc(func() {
	prometheus.MustRegister(sizes, batchEntries, appendDuration, publishDuration, publishFailures, proofFailures, tagsTaken, guardRefusals,
		checkpointFailures, witnessRequests, witnessBehind, quorumBehind)
})
