package translog

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/transparency-dev/merkle/compact"
)

var ranges = &compact.RangeFactory{Hash: hasher.HashChildren}

// state is a tree: its root and its compact range (hashes). The compact range lists the roots of
// the fewest perfect subtrees that together cover all leaves, from left to right. A state is
// immutable.
type state struct {
	root
	hashes [][]byte
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

// rows returns the new rows of translog.nodes, one slice for each column. Only the nodes at
// levels 8, 16, … are stored.
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
