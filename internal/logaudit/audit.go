package logaudit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

const (
	ahead       = 32 // prefetched tiles of level 0, and as many entry bundles
	maxFindings = 20 // after which an audit stops
)

// Audit computes the root of a log from its entries and compares every tile with the
// entries or tiles below it. If two files disagree, the tile above them decides which
// one is wrong.
func Audit(ctx context.Context, from *Source, head Head) error {
	a := &audit{ctx: ctx, from: from, head: head, last: map[int]content{}}
	err := a.run()
	if len(a.findings) > 0 { // they count even if the audit could not finish
		return &Contradiction{Findings: a.findings}
	}
	return err
}

type audit struct {
	ctx      context.Context
	from     *Source
	head     Head
	levels   []level
	last     map[int]content // the last tile that was read, by level
	findings []Finding
}

// level is one level of the tree as it was computed from the level below.
type level struct {
	full  int64       // the number of full tiles
	nodes []tlog.Hash // the nodes after these tiles
}

var errEnough = errors.New("too many files are wrong")

func (a *audit) run() error {
	tiles := (a.head.Size + checkpoint.TileWidth - 1) / checkpoint.TileWidth
	for n := int64(0); n < tiles; n += ahead {
		if err := a.window(n, min(n+ahead, tiles)); err != nil {
			return err
		}
	}
	return a.edge()
}

// window reads the tiles [n, end) of level 0 and their entries, and appends the
// entries to the computed tree.
func (a *audit) window(n, end int64) error {
	entries, tiles := make([]content, end-n), make([]content, end-n)
	group, ctx := errgroup.WithContext(a.ctx)
	group.SetLimit(parallel)
	for i := range entries {
		group.Go(func() (err error) {
			entries[i], err = a.from.read(ctx, tileAt(-1, n+int64(i), a.head.Size))
			return err
		})
		group.Go(func() (err error) {
			tiles[i], err = a.from.read(ctx, tileAt(0, n+int64(i), a.head.Size))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, bundle := range entries {
		a.last[0] = tiles[i]
		leaves := bundle.hashes
		if bundle.problem != "" {
			a.find(bundle, "%s", bundle.problem)
			leaves = tiles[i].hashes // continue with the hashes of the tile
		}
		if leaves == nil {
			a.find(tiles[i], "%s", tiles[i].problem)
			return errEnough
		}
		for _, leaf := range leaves {
			if err := a.push(0, leaf); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *audit) find(c content, format string, args ...any) {
	a.findings = append(a.findings, Finding{c.path(), fmt.Sprintf(format, args...)})
}

// push appends a node to a level. When that completes a tile, push compares the tile
// and pushes its root to the level above.
func (a *audit) push(l int, node tlog.Hash) error {
	if l == len(a.levels) {
		a.levels = append(a.levels, level{})
	}
	at := &a.levels[l]
	if at.nodes = append(at.nodes, node); len(at.nodes) < checkpoint.TileWidth {
		return nil
	}
	root, err := a.compare(l, at.full, at.nodes)
	if err != nil {
		return err
	}
	at.full, at.nodes = at.full+1, at.nodes[:0]
	if len(a.findings) >= maxFindings {
		return errEnough
	}
	return a.push(l+1, root)
}

// tile reads a tile, or returns it if it is the last one that was read of its level.
func (a *audit) tile(l int, n int64) (content, error) {
	want := tileAt(l, n, a.head.Size)
	if a.last[l].Tile == want {
		return a.last[l], nil
	}
	c, err := a.from.read(a.ctx, want)
	if err == nil {
		a.last[l] = c
	}
	return c, err
}

// compare compares a full tile with the nodes that were computed from below. If they
// differ, it returns the root that the tile above has.
func (a *audit) compare(l int, n int64, below []tlog.Hash) (tlog.Hash, error) {
	served, err := a.tile(l, n)
	computed := subtree(below)
	switch {
	case err != nil:
		return tlog.Hash{}, err
	case served.problem != "":
		a.find(served, "%s", served.problem)
		return computed, nil
	case slices.Equal(served.hashes, below):
		return computed, nil
	}
	above, err := a.tile(l+1, n/checkpoint.TileWidth)
	if err != nil {
		return tlog.Hash{}, err
	}
	var held tlog.Hash
	if above.problem == "" {
		held = above.hashes[n%checkpoint.TileWidth]
	}
	if root := subtree(served.hashes); held == root {
		a.belowIsWrong(served, below)
		return root, nil
	}
	a.disagree(served, below, held == computed)
	return computed, nil
}

// belowIsWrong reports each file below a tile that does not lead to its hash in the
// tile.
func (a *audit) belowIsWrong(served content, below []tlog.Hash) {
	for i, hash := range served.hashes {
		switch at := served.N*checkpoint.TileWidth + int64(i); {
		case hash == below[i]:
		case served.L == 0:
			a.find(content{Tile: tileAt(-1, served.N, a.head.Size)}, "entry %d does not have the leaf hash %d of %s", i, at, served.path())
			return // one finding per file
		default:
			a.find(content{Tile: tileAt(served.L-1, at, a.head.Size)}, "its root is not hash %d of %s", i, served.path())
		}
	}
}

// disagree reports a tile that does not match the file below it. tileIsWrong says that
// the tile is known to be the wrong one.
func (a *audit) disagree(served content, below []tlog.Hash, tileIsWrong bool) {
	i := 0
	for served.hashes[i] == below[i] {
		i++
	}
	what := content{Tile: tileAt(served.L-1, served.N*checkpoint.TileWidth+int64(i), a.head.Size)}
	if served.L == 0 {
		what = content{Tile: tileAt(-1, served.N, a.head.Size)}
	}
	if tileIsWrong {
		a.find(served, "hash %d is not the hash of %s", i, what.path())
		return
	}
	a.find(served, "hash %d is not the hash of %s, and neither of the two leads to the checkpoint", i, what.path())
}

// edge compares the partial tiles. No tile has their roots, so only the checkpoint's
// root decides which files are wrong.
func (a *audit) edge() error {
	var computed, served [][]tlog.Hash // by level
	var differ []content
	for l, at := range a.levels {
		nodes := at.nodes
		if len(nodes) > 0 {
			c, err := a.tile(l, at.full)
			switch {
			case err != nil:
				return err
			case c.problem != "":
				a.find(c, "%s", c.problem)
			case !slices.Equal(c.hashes, nodes):
				differ = append(differ, c)
				nodes = c.hashes
			}
		}
		computed, served = append(computed, at.nodes), append(served, nodes)
	}
	root := tlog.Hash(a.head.Root)
	switch good := rootOf(computed) == root; {
	case len(differ) > 0 && rootOf(served) == root:
		for _, c := range differ {
			a.belowIsWrong(c, a.levels[c.L].nodes)
		}
	case len(differ) > 0:
		for _, c := range differ {
			a.disagree(c, a.levels[c.L].nodes, good)
		}
	case !good && len(a.findings) == 0:
		return contradicts(checkpointPath, [][]byte{a.head.Note}, "the %d entries lead to the root %v, and the checkpoint has %v", a.head.Size, rootOf(computed), root)
	}
	return nil
}

// subtree returns the root over the nodes, whose number is a power of two.
func subtree(nodes []tlog.Hash) tlog.Hash {
	if len(nodes) == 1 {
		return nodes[0]
	}
	half := len(nodes) / 2
	return tlog.NodeHash(subtree(nodes[:half]), subtree(nodes[half:]))
}

// rootOf returns the root of a tree (RFC 6962 2.1) from the nodes of each level that
// follow its full tiles. It works from the right, where the smallest subtrees are, to
// the left.
func rootOf(levels [][]tlog.Hash) tlog.Hash {
	root, started := tlog.Hash(sha256.Sum256(nil)), false
	for _, nodes := range levels {
		for len(nodes) > 0 {
			size := len(nodes) & -len(nodes) // the rightmost perfect subtree
			left := subtree(nodes[len(nodes)-size:])
			if started {
				left = tlog.NodeHash(left, root)
			}
			root, started, nodes = left, true, nodes[:len(nodes)-size]
		}
	}
	return root
}
