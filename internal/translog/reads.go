package translog

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	maxReads    = 2    // statements under way
	maxAsked    = 1024 // questions of one statement
	readsBudget = 10 * time.Second
)

// leafQuery names a leaf by its index or its entry, or none.
type leafQuery struct {
	index *int64
	entry *[32]byte
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

// readLeaves answers all queries with the same reading.
func (l *Log) readLeaves(ctx context.Context, queries []leafQuery) ([]*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readsBudget)
	defer cancel()
	indexes, entries := []int64{}, [][]byte{}
	for _, q := range queries {
		switch {
		case q.index != nil:
			indexes = append(indexes, *q.index)
		case q.entry != nil:
			entries = append(entries, q.entry[:])
		}
	}
	rows, err := l.store.pool.Query(ctx, sqlNewestHeadAndLeaves, indexes, entries)
	if err != nil {
		return nil, fromDatabase(err)
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
		got.headErr = l.checks.head(got.head)
		return nil
	})
	if err != nil {
		return nil, fromDatabase(err)
	}
	return slices.Repeat([]*reading{got}, len(queries)), nil
}
