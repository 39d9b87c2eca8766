package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
)

// Inclusion is the proof that a leaf is under a published head.
type Inclusion struct {
	TreeHead
	LeafIndex int64    `json:"leaf_index"`
	Entry     string   `json:"entry"`          // 64 lower-case hex digits
	Path      []string `json:"inclusion_path"` // from the leaf up; 64 lower-case hex digits each
}

// Consistency is the proof that a published head extends an older one.
type Consistency struct {
	First  TreeHead `json:"first"`
	Second TreeHead `json:"second"`
	Path   []string `json:"consistency_path"` // 64 lower-case hex digits each
}

// LeafQuery names a leaf by its index, its entry, or both. TreeSize is nil for the newest head.
type LeafQuery struct {
	LeafIndex *int64
	Entry     *[32]byte
	TreeSize  *int64
}

// TreeHead returns the newest published head. Each call reads the database, so the head is at
// least as new as every head that was returned before the call. Exception: after a failover of
// Postgres, a head that was returned during the crash may be missing until the log signs it again.
func (l *Log) TreeHead(ctx context.Context) (TreeHead, error) {
	return l.headAt(ctx, nil)
}

// TreeHeadAt returns the published head of a size, or an error if there is none.
func (l *Log) TreeHeadAt(ctx context.Context, size int64) (TreeHead, error) {
	return l.headAt(ctx, &size)
}

func (l *Log) headAt(ctx context.Context, size *int64) (TreeHead, error) {
	heads, err := l.heads(ctx, size)
	if err != nil {
		return TreeHead{}, err
	}
	return heads[0], nil
}

// Inclusion proves that a leaf is under a head. It returns ErrNotFound if the head does not cover the leaf or
// the leaf has another entry, and ErrInconsistent if the stored tree does not match the signed head.
func (l *Log) Inclusion(ctx context.Context, q LeafQuery) (Inclusion, error) {
	read, err := l.reads.Do(ctx, headLeafQuery{q, []*int64{q.TreeSize}})
	if err != nil {
		return Inclusion{}, l.checks.recordFailure(ctx, err)
	}
	inclusion, err := l.prove(ctx, q, read)
	return inclusion, l.checks.recordFailure(ctx, err)
}

func (l *Log) prove(ctx context.Context, q LeafQuery, read *readResult) (Inclusion, error) {
	head, err := l.published(read, q.TreeSize)
	if err != nil {
		return Inclusion{}, err
	}
	leaf, found := read.leaf(q)
	if q.LeafIndex != nil {
		leaf.index = *q.LeafIndex
	}
	switch {
	case (found || q.LeafIndex != nil) && (leaf.index < 0 || leaf.index >= head.TreeSize):
		return Inclusion{}, fmt.Errorf("%w: leaf %d is not under the head of size %d", ErrNotFound, leaf.index, head.TreeSize)
	case !found && q.LeafIndex != nil:
		return Inclusion{}, missing(0, uint64(leaf.index))
	case !found:
		return Inclusion{}, fmt.Errorf("%w: no leaf has the given entry", ErrNotFound)
	}
	path, err := l.tree.inclusion(ctx, leaf.index, leaf.entry, treeOf(head))
	if err != nil {
		return Inclusion{}, err
	}
	if q.Entry != nil && !bytes.Equal(leaf.entry, q.Entry[:]) {
		return Inclusion{}, fmt.Errorf("%w: leaf %d does not have the given entry", ErrNotFound, leaf.index)
	}
	return Inclusion{TreeHead: head, LeafIndex: leaf.index, Entry: hex.EncodeToString(leaf.entry), Path: toHex(path)}, nil
}

// Consistency proves that the published head of size `second` (nil: the newest) extends that of `first`.
func (l *Log) Consistency(ctx context.Context, first int64, second *int64) (Consistency, error) {
	heads, err := l.heads(ctx, &first, second)
	if err != nil {
		return Consistency{}, err
	}
	path, err := l.tree.consistency(ctx, treeOf(heads[0]), treeOf(heads[1]))
	if err != nil {
		return Consistency{}, l.checks.recordFailure(ctx, err)
	}
	return Consistency{First: heads[0], Second: heads[1], Path: toHex(path)}, nil
}

func toHex(hashes [][]byte) []string {
	path := make([]string, len(hashes))
	for i, h := range hashes {
		path[i] = hex.EncodeToString(h)
	}
	return path
}

// inclusion returns the verified path from a leaf to the head's root, or ErrInconsistent.
func (t *tree) inclusion(ctx context.Context, index int64, entry []byte, head root) (path [][]byte, err error) {
	at, size := uint64(index), uint64(head.size)
	nodes, err := proof.Inclusion(at, size)
	if err != nil {
		return nil, err
	}
	count := len(nodes.IDs)
	var leaf []byte
	err = t.prove(ctx, head, append(nodes.IDs[:count:count], compact.NewNodeID(0, at)), func(hashes [][]byte) error {
		leaf = hashes[count]
		if path, err = nodes.Rehash(hashes[:count], hasher.HashChildren); err == nil {
			err = proof.VerifyInclusion(hasher, at, size, leaf, path, head.hash)
		}
		if err != nil {
			return fmt.Errorf("%w: leaf %d does not lead to the head of size %d: %w", ErrInconsistent, at, size, shortenRootMismatch(err))
		}
		return nil
	})
	if err == nil && !bytes.Equal(leaf, hasher.HashLeaf(entry)) {
		err = fmt.Errorf("%w: the entry in the row of leaf %d does not match the tree", ErrInconsistent, at)
	}
	return path, err
}

// consistency returns a verified proof. From an empty tree it is empty and proves nothing.
func (t *tree) consistency(ctx context.Context, first, second root) (path [][]byte, err error) {
	nodes, err := proof.Consistency(uint64(first.size), uint64(second.size))
	if err != nil {
		return nil, err
	}
	err = t.prove(ctx, second, nodes.IDs, func(hashes [][]byte) error {
		if path, err = nodes.Rehash(hashes, hasher.HashChildren); err == nil {
			err = proof.VerifyConsistency(hasher, uint64(first.size), uint64(second.size), path, first.hash, second.hash)
		}
		if err != nil {
			return fmt.Errorf("%w: the tree of size %d does not extend the tree of size %d: %w", ErrInconsistent, second.size, first.size, shortenRootMismatch(err))
		}
		return nil
	})
	return path, err
}

// prove calls verify with the hashes of the nodes. If hashes from memory contradict the root, prove reads the
// tables again: the database may have been replaced.
func (t *tree) prove(ctx context.Context, under root, ids []compact.NodeID, verify func([][]byte) error) error {
	if len(ids) == 0 {
		return verify(nil)
	}
	hashes, err := t.nodes(ctx, under, ids)
	if err == nil {
		err = verify(hashes)
	}
	if t.fresh || !errors.Is(err, ErrInconsistent) {
		return err
	}
	second := freshTree(t.store)
	if err := second.prove(ctx, under, ids, verify); err != nil {
		return err
	}
	t.replace(second)
	return nil
}

// shortenRootMismatch replaces the library's text, which prints both roots over several lines.
func shortenRootMismatch(err error) error {
	if _, ok := errors.AsType[proof.RootMismatchError](err); ok {
		return errors.New("the computed root differs from the expected root")
	}
	return err
}

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
