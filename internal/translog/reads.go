package translog

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	maxReads    = 2    // most statements at once
	maxAsked    = 1024 // most queries of one statement
	readsBudget = 10 * time.Second
)

// reading is the newest head and the leaves that were asked for, from one statement.
type reading struct {
	head    TreeHead
	headErr error // why the head must not be answered
	leaves  []leafRow
}

type leafRow struct {
	index int64
	entry []byte
}

// leaf returns the row that the query names, by its index if it has one. found is false
// if there is no such row; index is then the index of the query.
func (r *reading) leaf(q LeafQuery) (index int64, entry []byte, found bool) {
	at := slices.IndexFunc(r.leaves, func(row leafRow) bool {
		if q.LeafIndex != nil {
			return row.index == *q.LeafIndex
		}
		return q.Entry != nil && [32]byte(row.entry) == *q.Entry
	})
	switch {
	case at >= 0:
		return r.leaves[at].index, r.leaves[at].entry, true
	case q.LeafIndex != nil:
		return *q.LeafIndex, nil, false
	}
	return 0, nil, false
}

// readLeaves answers all queries with one reading.
func (l *Log) readLeaves(ctx context.Context, queries []LeafQuery) ([]*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readsBudget)
	defer cancel()
	indexes, entries := []int64{}, [][]byte{}
	for _, q := range queries {
		switch {
		case q.LeafIndex != nil:
			indexes = append(indexes, *q.LeafIndex)
		case q.Entry != nil:
			entries = append(entries, q.Entry[:])
		}
	}
	rows, _ := l.store.pool.Query(ctx, sqlNewestHeadAndLeaves, indexes, entries)
	got := &reading{headErr: errNoneYet}
	var at int64
	var value []byte
	var signature *string
	_, err := pgx.ForEachRow(rows, []any{&at, &value, &signature}, func() error {
		if signature == nil {
			got.leaves = append(got.leaves, leafRow{at, slices.Clone(value)})
			return nil
		}
		got.head = root{at, value}.head(*signature)
		got.headErr = l.checks.head(got.head)
		return nil
	})
	if err != nil {
		return nil, fromDatabase(err)
	}
	return slices.Repeat([]*reading{got}, len(queries)), nil
}
