package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
)

// Inclusion proves that a leaf is under a published head.
type Inclusion struct {
	TreeHead
	LeafIndex int64    `json:"leaf_index"`
	Entry     string   `json:"entry"`          // 64 lower-case hex digits; the leaf hash is SHA-256(0x00 ‖ entry)
	Path      []string `json:"inclusion_path"` // RFC 6962 2.1.1, from the leaf up, 64 lower-case hex digits each
}

// Consistency proves that a published head extends an older one.
type Consistency struct {
	First  TreeHead `json:"first"`
	Second TreeHead `json:"second"`
	Path   []string `json:"consistency_path"` // RFC 6962 2.1.2
}

// LeafQuery names a leaf by its index, its entry, or both, and optionally the
// size of the published head to prove it under: nil is the newest.
type LeafQuery struct {
	LeafIndex *int64
	Entry     *[32]byte
	TreeSize  *int64
}

// TreeHead gives the newest published head, read from the database at each call,
// so that it is never older than one that any replica answered before.
func (l *Log) TreeHead(ctx context.Context) (TreeHead, error) {
	heads, _, err := l.read(ctx, nil, nil)
	if err != nil {
		return TreeHead{}, l.checks.note(ctx, err)
	}
	return heads[0], nil
}

// TreeHeadAt gives the published head of that size. Not every size was
// published.
func (l *Log) TreeHeadAt(ctx context.Context, size int64) (TreeHead, error) {
	heads, _, err := l.read(ctx, nil, &size)
	if err != nil {
		return TreeHead{}, l.checks.note(ctx, err)
	}
	return heads[0], nil
}

// Inclusion proves a leaf. It gives ErrNotFound where no published head covers
// the leaf or where it holds another entry than the one asked for.
//
// Beside the proof it recomputes the stored ancestors of the leaf from the
// complete tiles below them: a changed row in the leaf's tile, on its way up or
// in its path is ErrInconsistent.
func (l *Log) Inclusion(ctx context.Context, q LeafQuery) (Inclusion, error) {
	inclusion, err := l.inclusion(ctx, q)
	return inclusion, l.checks.note(ctx, err)
}

func (l *Log) inclusion(ctx context.Context, q LeafQuery) (Inclusion, error) {
	var lookup *[32]byte
	if q.LeafIndex == nil {
		lookup = q.Entry
	}
	heads, found, err := l.read(ctx, lookup, q.TreeSize)
	if err != nil {
		return Inclusion{}, err
	}
	head, at := heads[0], q.LeafIndex
	if at == nil {
		at = found
	}
	if at == nil {
		return Inclusion{}, fmt.Errorf("%w: no leaf holds the entry", ErrNotFound)
	}
	index := *at
	if index < 0 || index >= head.TreeSize {
		return Inclusion{}, fmt.Errorf("%w: leaf %d is not under the head of size %d", ErrNotFound, index, head.TreeSize)
	}
	entry, path, err := l.store.inclusion(ctx, index, head)
	if err != nil {
		return Inclusion{}, err
	}
	if q.Entry != nil && !bytes.Equal(entry, q.Entry[:]) {
		return Inclusion{}, fmt.Errorf("%w: leaf %d holds another entry", ErrNotFound, index)
	}
	return Inclusion{TreeHead: head, LeafIndex: index, Entry: hex.EncodeToString(entry), Path: toHex(path)}, nil
}

// Consistency proves that the published head of size second, nil being the
// newest, extends that of size first, which must not be larger.
func (l *Log) Consistency(ctx context.Context, first int64, second *int64) (Consistency, error) {
	heads, _, err := l.read(ctx, nil, &first, second)
	if err != nil {
		return Consistency{}, l.checks.note(ctx, err)
	}
	var roots [2]root
	for i, head := range heads {
		if roots[i], err = head.root(); err != nil {
			return Consistency{}, l.checks.note(ctx, fmt.Errorf("%w: %w", ErrInconsistent, err))
		}
	}
	path, err := l.store.consistency(ctx, roots[0], roots[1])
	if err != nil {
		return Consistency{}, l.checks.note(ctx, err)
	}
	return Consistency{First: heads[0], Second: heads[1], Path: toHex(path)}, nil
}

// read gives the published heads of the sizes, nil being the newest, each
// verified, and the index of the entry where one is asked for and there, in one
// round trip.
func (l *Log) read(ctx context.Context, entry *[32]byte, sizes ...*int64) (heads []TreeHead, index *int64, err error) {
	batch := &pgx.Batch{}
	found := make([]*TreeHead, len(sizes))
	if entry != nil {
		// Before the heads: a leaf that is seen here may still be under no head
		// that was read before it.
		batch.Queue(sqlFindEntries, [][]byte{entry[:]}).Query(func(rows pgx.Rows) error {
			var ignored []byte
			var at int64
			_, err := pgx.ForEachRow(rows, []any{&ignored, &at}, func() error { index = &at; return nil })
			return err
		})
	}
	for i, size := range sizes {
		if size == nil {
			batch.Queue(sqlNewestHead).Query(oneHead(&found[i]))
		} else {
			batch.Queue(sqlHeadAt, *size).Query(oneHead(&found[i]))
		}
	}
	if err := l.store.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, fromDatabase(err)
	}
	for i, head := range found {
		switch {
		case head == nil && sizes[i] == nil:
			return nil, nil, fmt.Errorf("%w: no head is published yet", ErrUnavailable)
		case head == nil:
			return nil, nil, fmt.Errorf("%w: %d", errNoHead, *sizes[i])
		}
		switch err := l.checks.head(*head); {
		case err == nil:
		case errors.Is(err, errRetired) && sizes[i] != nil: // a stranger asks for it, and nothing of now stands on it
			return nil, nil, fmt.Errorf("%w that verifiers accept: %d", errNoHead, *sizes[i])
		default:
			return nil, nil, err
		}
		heads = append(heads, *head)
	}
	return heads, index, nil
}

// inclusion computes the leaf's path from the tables and checks it against the
// head, and the leaf's stored ancestors against the tiles below them.
func (s *store) inclusion(ctx context.Context, index int64, head TreeHead) (entry []byte, path [][]byte, err error) {
	at, size := uint64(index), uint64(head.TreeSize)
	nodes, err := proof.Inclusion(at, size)
	if err != nil {
		return nil, nil, err
	}
	leaf := compact.NewNodeID(0, at)
	ancestors := storedAncestors(at, size)
	t, err := s.readTiles(ctx, size, append(append([]compact.NodeID{leaf}, nodes.IDs...), ancestors...))
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ancestors {
		below := tile{level: id.Level - tileHeight, index: id.Index}
		if !bytes.Equal(t.node(id), t.compute(below)) {
			return nil, nil, fmt.Errorf("%w: node %d at level %d is not what the nodes below it lead to", ErrInconsistent, id.Index, id.Level)
		}
	}
	expected, err := head.root()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	if path, err = t.path(nodes); err == nil {
		err = proof.VerifyInclusion(hasher, at, size, t.node(leaf), path, expected.hash)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: leaf %d does not lead to the head of size %d: %w", ErrInconsistent, at, size, shortly(err))
	}
	return t.entries[at], path, nil
}

// storedAncestors are the nodes at levels 8, 16, … above a leaf that are
// complete in a tree of the size.
func storedAncestors(index, size uint64) (ids []compact.NodeID) {
	for level := uint(0); ; level += tileHeight {
		t := tile{level: level, index: index >> (level + tileHeight)}
		if !t.complete(size) {
			return ids
		}
		ids = append(ids, t.root())
	}
}

// shortly names a mismatch without the library's dump of both roots.
func shortly(err error) error {
	if _, ok := errors.AsType[proof.RootMismatchError](err); ok {
		return errors.New("the computed root differs")
	}
	return err
}

func toHex(hashes [][]byte) []string {
	path := make([]string, len(hashes))
	for i, h := range hashes {
		path[i] = hex.EncodeToString(h)
	}
	return path
}
