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
)

// Log is one replica of the transparency log. Its methods are safe for
// concurrent use, and so are any number of replicas on one database.
type Log struct {
	store     store
	checks    checks
	tree      *tree
	reads     *group[leafQuery, *reading]
	sequencer *sequencer
	publisher *publisher
	readOnly  bool // see ReadOnly
	// checkpoints is nil where the log publishes none.
	checkpoints *checkpoints

	closed context.Context // ends at Close
	end    context.CancelFunc
	loop   sync.WaitGroup // of the publisher and the checkpoints
}

// Open starts a replica on a migrated database, best reached by a pool of
// database.Open. Whatever is committed and not published is published first; on a
// new log that is the head of size 0.
func Open(ctx context.Context, pool *pgxpool.Pool, signer Signer, keys KeySet, logger *slog.Logger, options ...Option) (*Log, error) {
	if err := schema.Current(ctx, pool); err != nil {
		return nil, err
	}
	measured()
	l := &Log{store: store{pool}, checks: checks{keys: keys, logger: logger}}
	l.closed, l.end = context.WithCancel(context.Background())
	l.tree = newTree(&l.store, cacheBytes)
	l.reads = newGroup(maxReads, maxAsked, maxQueue, l.readLeaves)
	l.publisher = newPublisher(&l.store, &l.checks, l.tree, signer)
	l.sequencer = newSequencer(&l.store, &l.checks, l.tree, l.publisher.hand)
	for _, option := range options {
		option(l)
	}
	l.loop.Go(func() { l.publisher.run(l.closed) })
	if l.checkpoints != nil {
		l.loop.Go(func() { l.checkpoints.run(l.closed) })
	}
	return l, nil
}

// Close stops the replica. Appends that still wait get ErrUnavailable, as in a
// crash: what was sequenced stays, and is published at the next start.
func (l *Log) Close() {
	l.end()
	l.sequencer.close()
	l.reads.close()
	if l.checkpoints != nil {
		l.checkpoints.reads.close()
	}
	l.loop.Wait()
}

// Appended is where an entry is.
type Appended struct {
	LeafIndex int64 `json:"leaf_index"`
	TreeSize  int64 `json:"tree_size"` // of a published head that covers the leaf
}

// ReadOnly is the Option by which every append is refused over HTTP. What is in the
// log and has no head yet is still published: a restore ends with that.
func ReadOnly(l *Log) { l.readOnly = true }

// Append puts a digest, signed by a key of the set, into the log and returns
// once a published head covers it. An entry that the log has keeps its index, so
// the call may be repeated after any error; if it has no tag yet, it gets this one.
//
// It returns ErrTagTaken where the tag is that of another entry.
// It returns ErrRefused for a signature that does not verify, for a new entry
// under a retired key whose last leaf is behind the log, and for the digest of a
// head or checkpoint of this log: what is published is a digest with a good
// signature too, and anyone could bring it. It returns ErrUnavailable where ctx ends before the
// leaf is published, and where the key of the heads is out of reach or may not be
// used; the leaf may be in the log all the same.
func (l *Log) Append(ctx context.Context, entry [32]byte, signature string, tag Tag) (Appended, error) {
	key, err := l.checks.keys.SignedBy(entry, signature)
	if err != nil {
		return Appended{}, fmt.Errorf("%w: the signature over the entry: %w", ErrRefused, err)
	}
	began := time.Now()
	at, err := l.sequencer.do(ctx, candidate{entry, ceiling(key), tag})
	switch {
	case err != nil:
		return Appended{}, err
	case at.taken:
		tagsTaken.Inc()
		l.checks.logger.ErrorContext(ctx, "another entry has this tag", "leaf_index", at.index, "entry", hex.EncodeToString(entry[:]))
		return Appended{}, fmt.Errorf("%w: leaf %d", ErrTagTaken, at.index)
	case at.index == refused:
		return Appended{}, fmt.Errorf("%w: it is the digest of a head or checkpoint of this log", ErrRefused)
	case at.index == late:
		return Appended{}, fmt.Errorf("%w: it is new, and its signature is by a retired key that holds no leaf from index %d on; sign it again with the current key", ErrRefused, ceiling(key))
	}
	size, err := l.publisher.wait(ctx, l.closed, at.index)
	if err != nil {
		return Appended{}, err
	}
	appendDuration.Observe(time.Since(began).Seconds())
	return Appended{LeafIndex: at.index, TreeSize: size}, nil
}

// Ready returns an error while this replica cannot serve: the schema is not current,
// no head was published yet, or, wrapping database.ErrNoAnswer, the database is out of reach.
func (l *Log) Ready(ctx context.Context) error {
	if err := schema.Current(ctx, l.store.pool); err != nil {
		return err
	}
	head, err := l.TreeHead(ctx)
	if err == nil {
		sizePublished.Set(float64(head.TreeSize))
	}
	if errors.Is(err, errRetired) { // only an append leads to a better head
		return nil
	}
	return err
}

// ProofFailures counts the contradictions this replica met: proofs that did not
// lead to their head, heads that did not verify or did not extend the published
// one. It must stay zero.
func (l *Log) ProofFailures() int64 { return l.checks.failures.Load() }
