package translog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/platform/batch"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog/forkguard"
)

// Log is one replica of the transparency log. Its methods are safe for concurrent use,
// and any number of replicas may share a database.
type Log struct {
	store       store
	checks      checks
	tree        *tree
	reads       *batch.Group[headLeafQuery, *readResult]
	sequencer   *sequencer
	publisher   *publisher
	readOnly    bool
	checkpoints *checkpoints // nil if the log publishes none

	closed context.Context // ends at Close
	end    context.CancelFunc
	loop   sync.WaitGroup
}

// Options are the settings of a log; all are optional.
type Options struct {
	// ReadOnly makes the log refuse every append over HTTP. Committed leaves still get a
	// published head, so that a restore can finish.
	ReadOnly bool
	Guard    forkguard.Guard
	// Adopt is the size of the newest published head that a guard without a record accepts; nil: none but an
	// empty log. Only an operator who knows that the database is complete may set Adopt.
	Adopt       *int64
	Checkpoints *Checkpoints // nil: the log publishes no checkpoints and no tiles
}

// Open starts a replica on a migrated database. The pool must come from database.Open. The replica publishes
// its first head in the background.
func Open(ctx context.Context, pool *pgxpool.Pool, signer Signer, keys *signing.KeySet, logger *slog.Logger, o Options) (*Log, error) {
	if err := schema.Current(ctx, pool); err != nil {
		return nil, err
	}
	registerMetrics()
	l := &Log{store: store{pool}, checks: checks{keys: keys, logger: logger}, readOnly: o.ReadOnly}
	l.tree = newTree(&l.store, cacheBytes)
	l.publisher = &publisher{store: &l.store, checks: &l.checks, tree: l.tree, signer: signer, guard: o.Guard, adopt: o.Adopt,
		waiting: map[*waiter]struct{}{}, kick: make(chan struct{}, 1)}
	if o.Checkpoints != nil {
		var err error
		if l.checkpoints, err = newCheckpoints(l, *o.Checkpoints); err != nil {
			return nil, fmt.Errorf("checkpoints: %w", err)
		}
	}
	l.reads = newGroup(maxReads, maxAsked, l.readTables)
	l.sequencer = newSequencer(&l.store, &l.checks, l.tree, l.publisher.setLastBatch)
	l.closed, l.end = context.WithCancel(context.Background())
	l.loop.Go(func() { l.publisher.run(l.closed) })
	if l.checkpoints != nil {
		l.loop.Go(func() { l.checkpoints.run(l.closed) })
	}
	return l, nil
}

// Close stops the replica. Appends that still wait return ErrUnavailable.
func (l *Log) Close() {
	l.end()
	l.sequencer.batches.Close()
	l.reads.Close()
	if l.checkpoints != nil {
		l.checkpoints.reads.Close()
	}
	l.loop.Wait()
}

// Appended says where an entry is in the log.
type Appended struct {
	LeafIndex int64 `json:"leaf_index"`
	TreeSize  int64 `json:"tree_size"` // the size of a published head that covers the leaf
}

// Append appends an entry, and returns once a published head covers the leaf. The call may be
// repeated after any error: a logged entry keeps its index.
//
// The errors include:
//   - ErrTagTaken if another entry has the tag.
//   - ErrRefused if the signature does not verify, the entry has a leaf with another tag, or the
//     entry is new and the closed key that signed it may not sign another leaf.
//   - ErrRefused if the entry is the digest of a head or checkpoint of this log. Such a
//     digest and its signature are public, so anyone could send them.
//   - ErrUnavailable if the log cannot publish the leaf now. The leaf may be in the log
//     nevertheless.
func (l *Log) Append(ctx context.Context, entry [32]byte, signature string, tag Tag) (Appended, error) {
	key, err := l.checks.keys.SignedBy(entry, signature)
	if err != nil {
		return Appended{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	began := time.Now()
	at, err := l.sequencer.batches.Do(ctx, candidate{entry, ceiling(key), tag})
	switch {
	case err != nil:
		return Appended{}, err
	case at.taken:
		tagsTaken.Inc()
		l.checks.logger.ErrorContext(ctx, "append refused: another entry has the tag", "leaf_index", at.index, "entry", hex.EncodeToString(entry[:]))
		return Appended{}, fmt.Errorf("%w: leaf %d", ErrTagTaken, at.index)
	case at.index == refused:
		return Appended{}, fmt.Errorf("%w: the entry is the digest of a head or checkpoint of this log, or the log has it under another tag", ErrRefused)
	case at.index == late:
		return Appended{}, fmt.Errorf("%w: the entry is new, but its signing key is retired and may sign only leaves below index %d: sign the entry again with the current key", ErrRefused, ceiling(key))
	}
	size, err := l.publisher.wait(ctx, l.closed, at.index)
	if err != nil {
		return Appended{}, err
	}
	appendDuration.Observe(time.Since(began).Seconds())
	return Appended{LeafIndex: at.index, TreeSize: size}, nil
}

// Ready returns an error while this replica cannot serve. If the database is out of reach, the error wraps
// database.ErrNoAnswer.
func (l *Log) Ready(ctx context.Context) error {
	if err := schema.Current(ctx, l.store.pool); err != nil {
		return err
	}
	head, err := l.TreeHead(ctx)
	if err == nil {
		sizePublished.Set(float64(head.TreeSize))
	}
	if errors.Is(err, errRetired) { // the current key signs the next head
		return nil
	}
	return err
}

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
