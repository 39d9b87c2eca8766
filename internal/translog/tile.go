package translog

import "github.com/transparency-dev/merkle/compact"

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileNodes  = 2*tileWidth - 2 // number of nodes in a tile, without the root, which belongs to the tile above
	tileBytes  = tileNodes*32 + 256
)

// tileID names a tile of the Merkle tree. A tile has 256 neighbouring nodes of a level that Postgres
// stores (0, 8, 16, …). It also has the nodes of the seven levels above, which are computed. Level 0
// has the leaves. A node is complete when the tree has all leaves under the node.
type tileID struct {
	level uint
	index uint64 // the first stored node has the index 256*index
}

func tileOf(id compact.NodeID) tileID {
	above := id.Level % tileHeight
	return tileID{level: id.Level - above, index: id.Index >> (tileHeight - above)}
}

// span returns the indexes [first, end) of the tile's stored nodes whose subtrees are full in a
// tree of `size` leaves.
func (t tileID) span(size uint64) (first, end uint64) {
	first = t.index * tileWidth
	return first, min(first+tileWidth, size>>t.level)
}

func (t tileID) complete(size uint64) bool { return t.index+1 <= size>>(t.level+tileHeight) }

// root returns the id of the tile's root node, which belongs to the tile above.
func (t tileID) root() compact.NodeID { return compact.NewNodeID(t.level+tileHeight, t.index) }

// tile holds the nodes of a tile in memory. A node is zero until the tree has all leaves under the
// node. The node is then written once, and reading it needs no lock.
type tile struct {
	tileID
	nodes [tileNodes][32]byte
}

// slot returns the node's index in tile.nodes. The nodes of the stored level come first.
func slot(id compact.NodeID) uint64 {
	above := id.Level % tileHeight
	return 2*tileWidth - 2*tileWidth>>above + id.Index%(tileWidth>>above)
}

func (t *tile) node(id compact.NodeID) []byte { return t.nodes[slot(id)][:] }

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

func (t *tile) top() []byte {
	return hasher.HashChildren(t.nodes[tileNodes-2][:], t.nodes[tileNodes-1][:])
}
