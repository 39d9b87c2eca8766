package translog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	maxReads    = 2    // concurrent SQL statements
	maxAsked    = 1024 // queries that one statement answers
	readsBudget = 10 * time.Second
)

// headLeafQuery names what a call reads in addition to the newest head.
type headLeafQuery struct {
	leaf  LeafQuery
	sizes []*int64 // nil means the newest head
}

// readResult has the heads and leaves of all queries that share a statement.
type readResult struct {
	heads  map[int64]TreeHead // by size
	newest int64              // the size of the newest head, or -1 if no head is published
	leaves []leafRow
}

type leafRow struct {
	index int64
	entry []byte
}

func (r *readResult) leaf(q LeafQuery) (row leafRow, found bool) {
	at := slices.IndexFunc(r.leaves, func(row leafRow) bool {
		if q.LeafIndex != nil {
			return row.index == *q.LeafIndex
		}
		return q.Entry != nil && [32]byte(row.entry) == *q.Entry
	})
	if at < 0 {
		return leafRow{}, false
	}
	return r.leaves[at], true
}

// readTables answers all queries with one SQL statement. Each query gets the same readResult.
func (l *Log) readTables(ctx context.Context, queries []headLeafQuery) ([]*readResult, error) {
	ctx, cancel := context.WithTimeout(ctx, readsBudget)
	defer cancel()
	sizes, indexes, entries := []int64{}, []int64{}, [][]byte{}
	for _, q := range queries {
		for _, size := range q.sizes {
			if size != nil {
				sizes = append(sizes, *size)
			}
		}
		switch {
		case q.leaf.LeafIndex != nil:
			indexes = append(indexes, *q.leaf.LeafIndex)
		case q.leaf.Entry != nil:
			entries = append(entries, q.leaf.Entry[:])
		}
	}
	rows, _ := l.store.pool.Query(ctx, sqlHeadsAndLeaves, sizes, indexes, entries)
	got := &readResult{heads: map[int64]TreeHead{}, newest: -1}
	var at int64
	var value []byte
	var signature *string
	_, err := pgx.ForEachRow(rows, []any{&at, &value, &signature}, func() error {
		if signature == nil {
			got.leaves = append(got.leaves, leafRow{at, slices.Clone(value)})
			return nil
		}
		got.heads[at], got.newest = root{at, value}.head(*signature), max(got.newest, at)
		return nil
	})
	if err != nil {
		return nil, fromDatabase(err)
	}
	return slices.Repeat([]*readResult{got}, len(queries)), nil
}

// heads reads and verifies the published heads of the given sizes; nil means the newest head.
func (l *Log) heads(ctx context.Context, sizes ...*int64) ([]TreeHead, error) {
	heads := make([]TreeHead, len(sizes))
	read, err := l.reads.Do(ctx, headLeafQuery{sizes: sizes})
	for i, size := range sizes {
		if err == nil {
			heads[i], err = l.published(read, size)
		}
	}
	return heads, l.checks.recordFailure(ctx, err)
}

// published returns the head of this size, or the newest head if size is nil, once it is verified.
func (l *Log) published(read *readResult, size *int64) (TreeHead, error) {
	at := read.newest
	if size != nil {
		at = *size
	}
	head, found := read.heads[at]
	switch {
	case !found && size == nil:
		return TreeHead{}, unavailable(errors.New("no head is published yet"))
	case !found:
		return TreeHead{}, fmt.Errorf("%w: %d", errNoHead, at)
	}
	err := l.checks.head(head)
	// errNoHead is not counted as a contradiction. A request for the newest head still gets
	// ErrInconsistent.
	if size != nil && errors.Is(err, errRetired) {
		err = fmt.Errorf("%w: verifiers reject the stored head of size %d, because a retired key signed it", errNoHead, at)
	}
	return head, err
}
