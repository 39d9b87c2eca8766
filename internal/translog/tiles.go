package translog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
)

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// tile is up to 256 neighbouring stored nodes: leaves where level is 0, else the
// node rows of level 8, 16, …
type tile struct {
	level uint
	index uint64 // of the tile: its nodes are 256*index, …
}

// tileOf is the tile whose nodes id is one of or is computed from.
func tileOf(id compact.NodeID) tile {
	above := id.Level % tileHeight
	return tile{level: id.Level - above, index: id.Index >> (tileHeight - above)}
}

// span is the range [first, end) of the tile's complete nodes in a tree of the
// size.
func (t tile) span(size uint64) (first, end uint64) {
	first = t.index * tileWidth
	return first, min(first+tileWidth, size>>t.level)
}

// complete tells whether the tile has all its nodes in a tree of the size, so
// that its root is a stored node.
func (t tile) complete(size uint64) bool { return t.index+1 <= size>>(t.level+tileHeight) }

// root is the node above the whole tile.
func (t tile) root() compact.NodeID { return compact.NewNodeID(t.level+tileHeight, t.index) }

// tiles are stored nodes of one tree size, as they were read.
type tiles struct {
	size    uint64
	hashes  map[tile][][]byte
	entries map[uint64][]byte // of the leaves among them
}

// readTiles reads the tiles that the nodes need, in one round trip. Every node
// must be complete in a tree of the size. A row that is missing is
// ErrInconsistent.
func (s *store) readTiles(ctx context.Context, size uint64, ids []compact.NodeID) (*tiles, error) {
	t := &tiles{size: size, hashes: make(map[tile][][]byte), entries: make(map[uint64][]byte)}
	batch := &pgx.Batch{}
	for _, id := range ids {
		at := tileOf(id)
		if _, queued := t.hashes[at]; queued {
			continue
		}
		t.hashes[at] = nil
		first, end := at.span(size)
		if at.level == 0 {
			batch.Queue(sqlLeavesBetween, int64(first), int64(end)).Query(func(rows pgx.Rows) error {
				return t.collect(rows, at, first, end)
			})
		} else {
			batch.Queue(sqlNodesBetween, int64(first), int64(end), int16(at.level)).Query(func(rows pgx.Rows) error {
				return t.collect(rows, at, first, end)
			})
		}
	}
	if batch.Len() == 0 {
		return t, nil
	}
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fromDatabase(err)
	}
	return t, nil
}

func (t *tiles) collect(rows pgx.Rows, at tile, first, end uint64) error {
	var index int64
	var value []byte
	next := first
	_, err := pgx.ForEachRow(rows, []any{&index, &value}, func() error {
		if uint64(index) != next {
			return missing(at, next)
		}
		hash := slices.Clone(value)
		if at.level == 0 {
			t.entries[next] = hash
			hash = hasher.HashLeaf(hash)
		}
		t.hashes[at] = append(t.hashes[at], hash)
		next++
		return nil
	})
	if err == nil && next != end {
		err = missing(at, next)
	}
	return err
}

func missing(at tile, index uint64) error {
	return fmt.Errorf("%w: the row of node %d at level %d is missing", ErrInconsistent, index, at.level)
}

// node computes a node from the stored ones below it, or is the stored one.
func (t *tiles) node(id compact.NodeID) []byte {
	at := tileOf(id)
	count := uint64(1) << (id.Level - at.level)
	first := (id.Index * count) % tileWidth
	return above(t.hashes[at][first : first+count])
}

// compute gives the root of a complete tile from its nodes.
func (t *tiles) compute(at tile) []byte { return above(t.hashes[at]) }

// above is the node over 2^k neighbouring ones.
func above(nodes [][]byte) []byte {
	level := slices.Clone(nodes)
	for len(level) > 1 {
		for i := range len(level) / 2 {
			level[i] = hasher.HashChildren(level[2*i], level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0]
}

// path is the proof that consists of the nodes.
func (t *tiles) path(nodes proof.Nodes) ([][]byte, error) {
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		hashes[i] = t.node(id)
	}
	return nodes.Rehash(hashes, hasher.HashChildren)
}

// treeRoot computes the root of the whole tree from the nodes that
// compact.RangeNodes(0, size) names.
func (t *tiles) treeRoot() ([]byte, error) {
	var hashes [][]byte
	for _, id := range compact.RangeNodes(0, t.size, nil) {
		hashes = append(hashes, t.node(id))
	}
	whole, err := ranges.NewRange(0, t.size, hashes)
	if err != nil {
		return nil, err
	}
	return whole.GetRootHash(nil)
}
