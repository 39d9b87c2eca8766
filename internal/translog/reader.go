package translog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxReaders       = 2    // statements under way
	maxGroup         = 1024 // questions of one statement
	statementTimeout = 10 * time.Second
)

// reader answers all questions that wait at the same moment with one statement,
// which is sent after the last of them was asked. Nothing waits for a timer.
type reader struct {
	store  *store
	checks *checks

	mu      sync.Mutex
	queue   []*question // guarded by mu
	running int         // statements under way; guarded by mu
}

// leafQuery names a leaf by its index or its entry, or none.
type leafQuery struct {
	index *int64
	entry *[32]byte
}

type question struct {
	leafQuery
	span trace.Span
	done chan answered // has room for the one answer
}

type answered struct {
	*reading
	err error
}

// reading is the newest head and the leaves that were asked for, as one
// statement saw them.
type reading struct {
	head    TreeHead
	headErr error // why the head is not to be answered
	leaves  []leafRow
}

type leafRow struct {
	index int64
	entry []byte
}

// leaf returns the row that was asked for, and the index also where there is
// none.
func (r *reading) leaf(q leafQuery) (index int64, entry []byte, found bool) {
	at := slices.IndexFunc(r.leaves, func(row leafRow) bool {
		return q.index != nil && row.index == *q.index || q.entry != nil && [32]byte(row.entry) == *q.entry
	})
	switch {
	case at >= 0:
		return r.leaves[at].index, r.leaves[at].entry, true
	case q.index != nil:
		return *q.index, nil, false
	}
	return 0, nil, false
}

var noReading = &reading{}

// read returns the newest head and the leaf's row, read after the call began.
func (r *reader) read(ctx context.Context, q leafQuery) (*reading, error) {
	asked := &question{q, trace.SpanFromContext(ctx), make(chan answered, 1)}
	r.mu.Lock()
	r.queue = append(r.queue, asked)
	start := r.running < maxReaders
	if start {
		r.running++
	}
	r.mu.Unlock()
	if start {
		go r.run()
	}
	select {
	case got := <-asked.done:
		return got.reading, got.err
	case <-ctx.Done():
		return noReading, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// run sends statements until nobody waits.
func (r *reader) run() {
	for {
		r.mu.Lock()
		count := min(len(r.queue), maxGroup)
		group := slices.Clone(r.queue[:count])
		r.queue = slices.Delete(r.queue, 0, count)
		if count == 0 {
			r.running--
		}
		r.mu.Unlock()
		if count == 0 {
			return
		}
		got := answered{}
		got.reading, got.err = r.statement(group)
		for _, asked := range group {
			asked.done <- got
		}
	}
}

func (r *reader) statement(group []*question) (*reading, error) {
	// The statement serves others too: it does not end with one caller.
	ctx, cancel := context.WithTimeout(trace.ContextWithSpan(context.Background(), group[0].span), statementTimeout)
	defer cancel()
	indexes, entries := []int64{}, [][]byte{}
	for _, asked := range group {
		switch {
		case asked.index != nil:
			indexes = append(indexes, *asked.index)
		case asked.entry != nil:
			entries = append(entries, asked.entry[:])
		}
	}
	rows, err := r.store.pool.Query(ctx, sqlNewestHeadAndLeaves, indexes, entries)
	if err != nil {
		return noReading, fromDatabase(err)
	}
	got := &reading{headErr: errNoneYet}
	var at int64
	var value []byte
	var signature *string
	_, err = pgx.ForEachRow(rows, []any{&at, &value, &signature}, func() error {
		if signature == nil {
			got.leaves = append(got.leaves, leafRow{at, slices.Clone(value)})
			return nil
		}
		got.head = root{at, value}.head(*signature)
		got.headErr = r.checks.head(got.head)
		return nil
	})
	if err != nil {
		return noReading, fromDatabase(err)
	}
	return got, nil
}
