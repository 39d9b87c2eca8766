package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/transparency-dev/merkle/compact"

	"github.com/fairpact/fairpact/internal/platform/crash"
)

// Values of sequenced.index for an entry that gets no leaf.
const (
	refused = -1 // the entry is the digest of a head or checkpoint of this log, or has a leaf with another tag
	late    = -2 // the entry is new, and the log has reached the TreeSize of its closed key
)

// appendTo appends a batch. appended is false if the statement changed nothing; sqlAppendBatch says when.
func appendTo(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, g *batchDelta) (appended bool, err error) {
	levels, indexes, hashes := g.rows()
	// A nil slice would become NULL, which does not equal the empty array of an empty log.
	err = db.QueryRow(ctx, sqlAppendBatch, g.from.size, g.from.hash, append([][]byte{}, g.from.hashes...), g.to.size, g.to.hash, g.to.hashes,
		g.entries, g.tags, levels, indexes, hashes).Scan(&appended)
	return appended, fromDatabase(err)
}

// commit appends the new entries on the locked path. It may be called again after any error.
func (s *store) commit(ctx context.Context, entries []candidate) (results []sequenced, g *batchDelta, err error) {
	var head state
	all, named := make([][]byte, len(entries)), make([][]byte, len(entries))
	for i := range entries {
		all[i], named[i] = entries[i].entry[:], entries[i].tag[:]
	}
	leaves, tags := make(map[[32]byte]int64, len(entries)), make(map[Tag]int64, len(entries))

	lookUp := &pgx.Batch{}
	// Under READ COMMITTED the look-up sees everything that the previous holder of the lock committed.
	lookUp.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	lookUp.Queue(sqlLockHead).QueryRow(func(row pgx.Row) error { return row.Scan(&head.size, &head.hash, &head.hashes) })
	lookUp.Queue(sqlLookUp, all).Query(leafIndexes(leaves))
	lookUp.Queue(sqlLookUpTags, named).Query(leafIndexes(tags))
	answers := s.pool.SendBatch(ctx, lookUp)
	tx := answers.Tx()
	defer func() { // no effect after the commit
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(clean)
	}()
	if err := answers.Close(); err != nil {
		return nil, nil, fromDatabase(err)
	}
	if err := head.check(); err != nil {
		return nil, nil, err
	}
	if results, g, err = head.admit(entries, leaves, tags); err != nil || len(g.entries) == 0 {
		return results, g, err
	}
	appended, err := appendTo(ctx, tx, g)
	if err == nil && !appended {
		err = unavailable(errors.New("another transaction stored a head or checkpoint whose digest is in this batch: append again"))
	}
	if err != nil {
		return nil, nil, err
	}
	crash.Point("log.before-commit")
	return results, g, fromDatabase(tx.Commit(ctx))
}

// leafIndexes reads rows of (entry or tag, leaf index) into the map. `refused` takes precedence.
func leafIndexes[K ~[32]byte](into map[K]int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key []byte
		var index int64
		_, err := pgx.ForEachRow(rows, []any{&key, &index}, func() error {
			if into[K(key)] != refused {
				into[K(key)] = index
			}
			return nil
		})
		return err
	}
}

// admit returns the result of each candidate, and what the batch adds to the log. leaves and tags
// map the entries and tags in the log to their leaf indexes; admit adds the new ones. An entry
// that occurs twice in the batch gets one leaf. The first of two entries gets their common tag.
func (s state) admit(batch []candidate, leaves map[[32]byte]int64, tags map[Tag]int64) ([]sequenced, *batchDelta, error) {
	// The committed head may be signed but not stored yet.
	leaves[s.head("").Digest()] = refused
	var entries, added [][]byte
	results := make([]sequenced, len(batch))
	for i := range batch {
		c := &batch[i]
		index, known := leaves[c.entry]
		owner, taken := tags[c.tag]
		switch {
		case known && (index < 0 || taken && owner == index):
			results[i].index = index
		case taken:
			results[i] = sequenced{owner, true}
		case known: // the entry has another tag
			results[i].index = refused
		default:
			if index = s.size + int64(len(entries)); index < c.ceiling {
				entries, added = append(entries, c.entry[:]), append(added, c.tag[:])
				tags[c.tag] = index
			} else {
				index = late
			}
			leaves[c.entry], results[i].index = index, index
		}
	}
	g, err := s.grow(entries)
	if err == nil {
		g.tags = added
	}
	return results, g, err
}

// fromDatabase converts an error. A violated constraint means that a row is beyond the committed head.
func fromDatabase(err error) error {
	if err == nil || errors.Is(err, ErrInconsistent) {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pg.Code, "23") {
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	return unavailable(err)
}

var ranges = &compact.RangeFactory{Hash: hasher.HashChildren}

// state is an immutable tree: its root and its compact range.
type state struct {
	root
	hashes [][]byte // the roots of the fewest perfect subtrees that cover all leaves, from left to right
}

var emptyState = state{root: emptyRoot}

// batchDelta is what a batch adds to the log.
type batchDelta struct {
	from, to state
	entries  [][]byte
	tags     [][]byte // one for each entry
	nodes    []node   // all nodes that the entries complete, leaves included
}

type node struct {
	id   compact.NodeID
	hash []byte
}

func (s state) check() error {
	tree, err := ranges.NewRange(0, uint64(s.size), s.hashes)
	if err != nil {
		return fmt.Errorf("%w: the compact range of the committed head of size %d is malformed: %w", ErrInconsistent, s.size, err)
	}
	computed, err := rootOf(tree)
	if err == nil && !bytes.Equal(computed, s.hash) {
		err = fmt.Errorf("%w: the committed root of size %d does not match the compact range", ErrInconsistent, s.size)
	}
	return err
}

func (s state) grow(entries [][]byte) (*batchDelta, error) {
	tree, err := ranges.NewRange(0, uint64(s.size), slices.Clone(s.hashes)) // tree.Append overwrites the slice, so tree gets a clone
	if err != nil {
		return nil, fmt.Errorf("%w: the compact range of size %d is malformed: %w", ErrInconsistent, s.size, err)
	}
	g := &batchDelta{from: s, entries: entries, nodes: make([]node, 0, 2*len(entries)+64)}
	for _, entry := range entries {
		err := tree.Append(hasher.HashLeaf(entry), func(id compact.NodeID, hash []byte) {
			g.nodes = append(g.nodes, node{id, hash})
		})
		if err != nil {
			return nil, fmt.Errorf("%w: cannot append to the compact range of size %d: %w", ErrInconsistent, s.size, err)
		}
	}
	hash, err := rootOf(tree)
	g.to = state{root{int64(tree.End()), hash}, tree.Hashes()}
	return g, err
}

func rootOf(tree *compact.Range) ([]byte, error) {
	if tree.End() == 0 {
		return emptyRoot.hash, nil
	}
	hash, err := tree.GetRootHash(nil)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot compute the root of size %d: %w", ErrInconsistent, tree.End(), err)
	}
	return hash, nil
}

func (g *batchDelta) rows() (levels []int16, indexes []int64, hashes [][]byte) {
	for _, n := range g.nodes {
		if n.id.Level > 0 && n.id.Level%tileHeight == 0 {
			levels = append(levels, int16(n.id.Level))
			indexes = append(indexes, int64(n.id.Index))
			hashes = append(hashes, n.hash)
		}
	}
	return levels, indexes, hashes
}
