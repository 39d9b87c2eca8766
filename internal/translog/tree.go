package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/transparency-dev/merkle/compact"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

const (
	cacheBytes = 64 << 20 // for complete tiles: those of a million leaves
	maxLoads   = 4        // callers that read tiles from the database at the same time
	maxCatchUp = 1024     // missing leaves up to which follow reads leaves
)

// tree is the part of the Merkle tree in this process's memory: the right edge, which grows as
// leaves are committed, and a cache of complete tiles, which never change.
type tree struct {
	store *store
	fresh bool // prove does not retry a failed proof
	loads *budget.Budget

	mu sync.Mutex
	// mu guards the fields below. Once a tile was looked up under mu, its complete nodes may be read
	// without mu, because they never change.
	at        state          // the tree whose last tiles are in rightEdge
	rightEdge map[uint]*tile // the last tile of each level, by level
	complete  *simplelru.LRU[tileID, *tile]
}

func newTree(s *store, bytes int) *tree {
	complete, err := simplelru.NewLRU[tileID, *tile](max(1, bytes/tileBytes), nil)
	if err != nil {
		panic(err) // not possible: NewLRU fails only if the size is below 1
	}
	return &tree{store: s, loads: budget.New(budget.Options{Size: maxLoads}), at: emptyState, rightEdge: map[uint]*tile{}, complete: complete}
}

// freshTree returns a tree without cached tiles, so its proofs use only rows read after this call.
func freshTree(s *store) *tree {
	t := newTree(s, cacheBytes)
	t.fresh = true
	return t
}

// grow adds the nodes of a committed batch, or returns false if the batch does not extend t.at.
func (t *tree) grow(delta *batchDelta) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.at.same(delta.from.root) {
		return false
	}
	for _, n := range delta.nodes {
		id := tileOf(n.id)
		last := t.rightEdge[id.level]
		if last == nil || last.tileID != id {
			if last != nil {
				t.complete.Add(last.tileID, last)
			}
			last = &tile{tileID: id}
			t.rightEdge[id.level] = last
		}
		copy(last.node(n.id), n.hash)
	}
	t.at = delta.to
	return true
}

func (t *tree) replace(other *tree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.rightEdge, t.complete = other.at, other.rightEdge, other.complete
}

// nodes returns the hashes of nodes that must be complete in the tree with the root `under`.
func (t *tree) nodes(ctx context.Context, under root, ids []compact.NodeID) ([][]byte, error) {
	if hashes := t.inMemory(under, ids); hashes != nil {
		return hashes, nil
	}
	done, err := place(ctx, t.loads)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := t.follow(ctx, under); err != nil {
		return nil, err
	}
	var in *tile
	hashes := make([][]byte, len(ids))
	for i, id := range ids {
		if at := tileOf(id); in == nil || in.tileID != at {
			var err error
			if in, err = t.load(ctx, under, at); err != nil {
				return nil, err
			}
		}
		hashes[i] = in.node(id)
	}
	return hashes, nil
}

func (t *tree) inMemory(under root, ids []compact.NodeID) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.size < under.size {
		return nil
	}
	hashes := make([][]byte, len(ids))
	for i, id := range ids {
		in := t.tile(tileOf(id))
		if in == nil {
			return nil
		}
		hashes[i] = in.node(id)
	}
	return hashes
}

// tile returns nil if the tile is not in memory. The caller holds mu.
func (t *tree) tile(id tileID) *tile {
	if last := t.rightEdge[id.level]; last != nil && last.tileID == id {
		return last
	}
	in, _ := t.complete.Get(id)
	return in
}

func (t *tree) load(ctx context.Context, under root, id tileID) (*tile, error) {
	t.mu.Lock()
	in, size := t.tile(id), uint64(t.at.size)
	t.mu.Unlock()
	if size < uint64(under.size) {
		return nil, unavailable(errors.New("the tree in memory was replaced by a smaller one: call again"))
	}
	if in != nil {
		return in, nil
	}
	if !id.complete(size) {
		return nil, fmt.Errorf("%w: tile %d of level %d is not complete in a tree of size %d", ErrInconsistent, id.index, id.level, size)
	}
	above, err := t.load(ctx, under, tileOf(id.root()))
	if err != nil {
		return nil, err
	}
	read, err := t.store.readTiles(ctx, size, []tileID{id})
	if err != nil {
		return nil, err
	}
	in = read[0]
	if !bytes.Equal(in.top(), above.node(id.root())) {
		return nil, fmt.Errorf("%w: tile %d of level %d does not lead to the node above it", ErrInconsistent, id.index, id.level)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complete.Add(id, in)
	return in, nil
}

// follow extends the right edge to the size of `to`, or reads the whole right edge.
func (t *tree) follow(ctx context.Context, to root) error {
	t.mu.Lock()
	from := t.at
	t.mu.Unlock()
	if from.size >= to.size {
		return nil
	}
	if from.size > 0 && to.size-from.size <= maxCatchUp {
		entries, err := t.store.readEntries(ctx, uint64(from.size), uint64(to.size))
		if err != nil {
			return err
		}
		delta, err := from.grow(entries)
		// grow adds nothing if another caller has changed t since `from` was read.
		if err == nil && bytes.Equal(delta.to.hash, to.hash) && t.grow(delta) {
			return nil
		}
	}
	return t.readEdge(ctx, to)
}

// readEdge reads the right edge of the tree with the root `to`, and verifies it.
func (t *tree) readEdge(ctx context.Context, to root) error {
	size := uint64(to.size)
	perfect := compact.RangeNodes(0, size, nil)
	var ids []tileID
	edge := map[uint]*tile{}
	for _, id := range perfect {
		if at := tileOf(id); edge[at.level] == nil {
			edge[at.level] = &tile{}
			ids = append(ids, at)
		}
	}
	read, err := t.store.readTiles(ctx, size, ids)
	if err != nil {
		return err
	}
	for _, in := range read {
		edge[in.level] = in
	}
	next := state{root: to}
	for _, id := range perfect {
		next.hashes = append(next.hashes, edge[tileOf(id).level].node(id))
	}
	if err := next.check(); err != nil {
		return fmt.Errorf("%w: the stored leaves and nodes do not lead to the root of size %d", ErrInconsistent, to.size)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.size < to.size {
		t.at, t.rightEdge = next, edge
	}
	return nil
}

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileNodes  = 2*tileWidth - 2 // number of nodes in a tile, without the root, which belongs to the tile above
	tileBytes  = tileNodes*32 + 256
)

// tileID names a tile: 256 neighbouring nodes of a level that Postgres stores (0, 8, 16, …), and
// the nodes of the seven levels above, which are computed. Level 0 has the leaves. A node is
// complete when the tree has all leaves under the node.
type tileID struct {
	level uint
	index uint64 // the first stored node has the index 256*index
}

func tileOf(id compact.NodeID) tileID {
	above := id.Level % tileHeight
	return tileID{level: id.Level - above, index: id.Index >> (tileHeight - above)}
}

// span returns the indexes [first, end) of the stored nodes that are complete in a tree of `size`.
func (t tileID) span(size uint64) (first, end uint64) {
	first = t.index * tileWidth
	return first, min(first+tileWidth, size>>t.level)
}

func (t tileID) complete(size uint64) bool { return t.index+1 <= size>>(t.level+tileHeight) }

// root returns the id of the tile's root node, which belongs to the tile above.
func (t tileID) root() compact.NodeID { return compact.NewNodeID(t.level+tileHeight, t.index) }

// tile holds the nodes of a tile. A node is zero until it is complete. It is then written only once.
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
