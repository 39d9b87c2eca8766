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

	"github.com/fairpact/fairpact/internal/forkguard"
	"github.com/fairpact/fairpact/internal/signing"
)

// Log is one replica of the transparency log. Its methods are safe for concurrent use,
// and any number of replicas may share a database.
type Log struct {
	store     store
	checks    checks
	tree      *tree
	reads     *group[question, *reading]
	sequencer *sequencer
	publisher *publisher
	readOnly  bool
	// checkpoints is nil if the log publishes none.
	checkpoints *checkpoints

	closed context.Context // ends at Close
	end    context.CancelFunc
	loop   sync.WaitGroup
}

// Options are the optional settings of a log.
type Options struct {
	// ReadOnly makes the log refuse every append over HTTP. Committed leaves still get a
	// published head, so that a restore can finish.
	ReadOnly bool
	// Guard is the fork guard, or nil. The log moves the guard's record to a head before
	// it signs the head. All replicas share the record.
	Guard forkguard.Guard
	// Adopt is a size, or nil. An empty guard accepts the database if its newest published
	// head has this size. Only an operator who knows that the database is complete may set
	// it.
	Adopt *int64
	// Checkpoints, if not nil, makes the log publish checkpoints and tiles.
	Checkpoints *Checkpoints
}

// Open starts a replica on a migrated database. The pool must come from database.Open.
// The replica first publishes a head for leaves that have none. A new log gets a head of
// size 0. Open returns an error if the schema is not current or o.Checkpoints is invalid.
func Open(ctx context.Context, pool *pgxpool.Pool, signer Signer, keys *signing.KeySet, logger *slog.Logger, o Options) (*Log, error) {
	if err := schema.Current(ctx, pool); err != nil {
		return nil, err
	}
	registerMetrics()
	l := &Log{store: store{pool}, checks: checks{keys: keys, logger: logger}, readOnly: o.ReadOnly}
	l.tree = newTree(&l.store, cacheBytes)
	l.publisher = newPublisher(&l.store, &l.checks, l.tree, signer)
	l.publisher.guard, l.publisher.adopt = o.Guard, o.Adopt
	if o.Checkpoints != nil {
		var err error
		if l.checkpoints, err = newCheckpoints(l, *o.Checkpoints); err != nil {
			return nil, fmt.Errorf("checkpoints: %w", err)
		}
	}
	l.reads = newGroup(maxReads, maxAsked, maxQueue, l.readTables)
	l.sequencer = newSequencer(&l.store, &l.checks, l.tree, l.publisher.hand)
	l.closed, l.end = context.WithCancel(context.Background())
	l.loop.Go(func() { l.publisher.run(l.closed) })
	if l.checkpoints != nil {
		l.loop.Go(func() { l.checkpoints.run(l.closed) })
	}
	return l, nil
}

// Close stops the replica. Appends that still wait get ErrUnavailable. Their leaves stay,
// and the next start publishes them.
func (l *Log) Close() {
	l.end()
	l.sequencer.batches.close()
	l.reads.close()
	if l.checkpoints != nil {
		l.checkpoints.reads.close()
	}
	l.loop.Wait()
}

// Appended says where an entry is in the log.
type Appended struct {
	LeafIndex int64 `json:"leaf_index"`
	TreeSize  int64 `json:"tree_size"` // the size of a published head that covers the leaf
}

// Append logs a digest that a key of the set has signed, and returns once a published
// head covers it. The call may be repeated after any error: a logged entry keeps its
// index. A leaf without a tag gets the given tag.
//
// The errors include:
//   - ErrTagTaken if another entry has the tag.
//   - ErrRefused if the signature does not verify, or if the entry is new and its retired
//     key may hold no leaf at the next index.
//   - ErrRefused if the entry is the digest of a head or checkpoint of this log. Such a
//     digest and its signature are public, so anyone could send them.
//   - ErrUnavailable if the log cannot publish the leaf now. The leaf may be in the log
//     nevertheless.
func (l *Log) Append(ctx context.Context, entry [32]byte, signature string, tag Tag) (Appended, error) {
	key, err := l.checks.keys.SignedBy(entry, signature)
	if err != nil {
		return Appended{}, fmt.Errorf("%w: its signature: %w", ErrRefused, err)
	}
	began := time.Now()
	at, err := l.sequencer.batches.do(ctx, candidate{entry, ceiling(key), tag})
	switch {
	case err != nil:
		return Appended{}, err
	case at.taken:
		tagsTaken.Inc()
		l.checks.logger.ErrorContext(ctx, "another entry has this tag", "leaf_index", at.index, "entry", hex.EncodeToString(entry[:]))
		return Appended{}, fmt.Errorf("%w: leaf %d", ErrTagTaken, at.index)
	case at.index == refused:
		return Appended{}, fmt.Errorf("%w: the entry is the digest of a head or checkpoint of this log", ErrRefused)
	case at.index == late:
		return Appended{}, fmt.Errorf("%w: the entry is new, but its signature is by a retired key that may hold no leaf from index %d on; sign it again with the current key", ErrRefused, ceiling(key))
	}
	size, err := l.publisher.wait(ctx, l.closed, at.index)
	if err != nil {
		return Appended{}, err
	}
	appendDuration.Observe(time.Since(began).Seconds())
	return Appended{LeafIndex: at.index, TreeSize: size}, nil
}

// Ready returns an error while this replica cannot serve: the schema is not current, no
// head is published, or the database is out of reach. The error for a database out of
// reach wraps database.ErrNoAnswer.
func (l *Log) Ready(ctx context.Context) error {
	if err := schema.Current(ctx, l.store.pool); err != nil {
		return err
	}
	head, err := l.TreeHead(ctx)
	if err == nil {
		sizePublished.Set(float64(head.TreeSize))
	}
	if errors.Is(err, errRetired) { // still ready: the current key signs the next head
		return nil
	}
	return err
}

// ProofFailures returns how many contradictions this replica has found, except refusals
// by the fork guard. It must stay 0. doc.go describes contradictions under Faults.
func (l *Log) ProofFailures() int64 { return l.checks.failures.Load() }
