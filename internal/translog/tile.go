package translog

import (
	"github.com/transparency-dev/merkle/compact"
)

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileNodes  = 2*tileWidth - 2 // all below its root, which is a node of the tile above
	tileBytes  = tileNodes*32 + 256
)

// tileID names a tile: 256 neighbouring stored nodes (leaves where level is 0,
// else the node rows of level 8, 16, …) and what is computed from them below the
// next stored level.
type tileID struct {
	level uint
	index uint64 // of the tile: its stored nodes are 256*index, …
}

// tileOf returns the tile that holds the node.
func tileOf(id compact.NodeID) tileID {
	above := id.Level % tileHeight
	return tileID{level: id.Level - above, index: id.Index >> (tileHeight - above)}
}

// span is the range [first, end) of the tile's complete stored nodes in a tree
// of the size.
func (t tileID) span(size uint64) (first, end uint64) {
	first = t.index * tileWidth
	return first, min(first+tileWidth, size>>t.level)
}

// complete reports whether the tile has all its nodes in a tree of the size, so
// that its root is a stored node.
func (t tileID) complete(size uint64) bool { return t.index+1 <= size>>(t.level+tileHeight) }

// root is the node above the whole tile.
func (t tileID) root() compact.NodeID { return compact.NewNodeID(t.level+tileHeight, t.index) }

// tile holds the nodes of a tile that are complete. A node is written once, so a
// reader that knows it to be complete needs no lock.
type tile struct {
	tileID
	nodes [tileNodes][32]byte
}

// slot is the node's place in its tile: the stored level comes first.
func slot(id compact.NodeID) uint64 {
	above := id.Level % tileHeight
	return 2*tileWidth - 2*tileWidth>>above + id.Index%(tileWidth>>above)
}

func (t *tile) node(id compact.NodeID) []byte { return t.nodes[slot(id)][:] }

// newTile computes the nodes above the stored ones.
func newTile(id tileID, stored [][]byte) *tile {
	t := &tile{tileID: id}
	for i, hash := range stored {
		copy(t.nodes[i][:], hash)
	}
	for above, count := uint(1), len(stored)/2; above < tileHeight; above, count = above+1, count/2 {
		for i := range uint64(count) {
			at := compact.NewNodeID(id.level+above, id.index<<(tileHeight-above)+i)
			copy(t.node(at), hasher.HashChildren(t.node(compact.NewNodeID(at.Level-1, 2*at.Index)), t.node(compact.NewNodeID(at.Level-1, 2*at.Index+1))))
		}
	}
	return t
}

// top computes the root of a complete tile.
func (t *tile) top() []byte {
	return hasher.HashChildren(t.nodes[tileNodes-2][:], t.nodes[tileNodes-1][:])
}
