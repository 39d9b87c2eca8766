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
	ahead       = 32 // tiles of level 0 that are fetched ahead, and as many entry bundles
	maxFindings = 20 // of one audit, which stops there
)

// Audit computes the root of a log from its entries and compares every tile with
// what lies below it. Where two files disagree, the tile above says which of them
// is not the log's.
func Audit(ctx context.Context, from *Source, head Head) error {
	a := &audit{ctx: ctx, from: from, head: head, last: map[int]content{}}
	err := a.run()
	if len(a.findings) > 0 { // they stand, whatever ended the audit
		return &Contradiction{Findings: a.findings}
	}
	return err
}

type audit struct {
	ctx      context.Context
	from     *Source
	head     Head
	levels   []level
	last     map[int]content // the tile of each level that was read last
	findings []Finding
}

// level is what was computed from below: the number of full tiles, and the nodes
// after them.
type level struct {
	full  int64
	nodes []tlog.Hash
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

// window reads the tiles [n, end) of level 0 and their entries, and takes the
// entries into the tree.
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
			leaves = tiles[i].hashes // the audit goes on with them
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

// push adds a node to a level. With a tile's last one the tile is compared, and
// its root goes to the level above.
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

// tile reads a tile, unless it is the one of its level that was read last.
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

// compare compares a full tile with what was computed from below, and returns the
// root of that one of the two which the tile above holds.
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

// belowIsWrong names each file below a tile that does not lead to its hash in it.
func (a *audit) belowIsWrong(served content, below []tlog.Hash) {
	for i, hash := range served.hashes {
		switch at := served.N*checkpoint.TileWidth + int64(i); {
		case hash == below[i]:
		case served.L == 0:
			a.find(content{Tile: tileAt(-1, served.N, a.head.Size)}, "entry %d is not that of leaf %d in %s", i, at, served.path())
			return // one finding a file
		default:
			a.find(content{Tile: tileAt(served.L-1, at, a.head.Size)}, "it is not the tile whose root is hash %d of %s", i, served.path())
		}
	}
}

// disagree names a tile that does not hold what lies below it.
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
		a.find(served, "hash %d is not that of %s below it", i, what.path())
		return
	}
	a.find(served, "hash %d is not that of %s below it, and neither leads to the checkpoint", i, what.path())
}

// edge compares the partial tiles, which no tile above vouches for but the
// checkpoint's root alone.
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

// subtree is the root over a number of nodes that is a power of two.
func subtree(nodes []tlog.Hash) tlog.Hash {
	if len(nodes) == 1 {
		return nodes[0]
	}
	half := len(nodes) / 2
	return tlog.NodeHash(subtree(nodes[:half]), subtree(nodes[half:]))
}

// rootOf is the root of a tree by the nodes of each level after its full tiles
// (RFC 6962 2.1): from the right, where the smallest subtrees are, to the left.
func rootOf(levels [][]tlog.Hash) tlog.Hash {
	root, some := tlog.Hash(sha256.Sum256(nil)), false
	for _, nodes := range levels {
		for len(nodes) > 0 {
			size := len(nodes) & -len(nodes) // the rightmost perfect subtree
			left := subtree(nodes[len(nodes)-size:])
			if some {
				left = tlog.NodeHash(left, root)
			}
			root, some, nodes = left, true, nodes[:len(nodes)-size]
		}
	}
	return root
}
