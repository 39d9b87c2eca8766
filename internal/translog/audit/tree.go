package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

const ahead = 32 // level-0 tiles that are in memory at a time

// tree reads the files of a log and verifies them from the top down. The root in the
// checkpoint proves all partial tiles together. Each hash in a tile proves one full tile of the
// level below. Each tile of level 0 proves its entry bundle.
type tree struct {
	from   *Source
	head   Head
	mirror *Source // nil if there is none

	edge  []content       // by tile level: the verified partial tile; nil hashes if the level has none
	known map[int]content // the last verified full tile of each level

	findings []Finding
	most     int // the number of findings at which the work stops
	notes    [][]byte
}

// openTree returns a tree whose edge is verified. The caller must pass the error to verdict.
func openTree(ctx context.Context, from *Source, head Head, mirror *Source, most int) (*tree, error) {
	t := &tree{from: from, head: head, mirror: mirror, known: map[int]content{}, most: most}
	return t, t.readEdge(ctx)
}

var errEnough = errors.New("too many files are wrong")

func (t *tree) addFinding(c content) error {
	t.findings = append(t.findings, Finding{c.path(), c.problem})
	if len(t.findings) >= t.most {
		return errEnough
	}
	return nil
}

func (t *tree) verdict(err error) error {
	if len(t.findings) > 0 {
		return &Contradiction{t.findings, t.notes}
	}
	return err
}

// read returns a correct copy from the mirror, or else the file from the log, which it stores in
// the mirror if the file is correct. `check` returns what is wrong with hashes, or "".
func (t *tree) read(ctx context.Context, want tlog.Tile, check func([]tlog.Hash) string) (content, error) {
	if t.mirror != nil {
		if c, err := t.mirror.read(ctx, want); err == nil && c.problem == "" && check(c.hashes) == "" {
			return c, nil
		}
	}
	c, err := t.from.read(ctx, want)
	if err != nil {
		return c, err
	}
	if c.problem == "" {
		c.problem = check(c.hashes)
	}
	if c.problem == "" && t.mirror != nil {
		err = t.mirror.write(c)
	}
	return c, err
}

func (t *tree) readEdge(ctx context.Context) error {
	for l := 0; t.head.Size>>(checkpoint.TileHeight*l) > 0; l++ {
		c := content{Tile: tileAt(l, t.head.Size>>(checkpoint.TileHeight*(l+1)), t.head.Size)}
		if c.W > 0 {
			var err error
			if c, err = t.from.read(ctx, c.Tile); err != nil {
				return err
			}
		}
		t.edge = append(t.edge, c)
	}
	if t.edgeRoot() != tlog.Hash(t.head.Root) {
		return t.repairEdge(ctx)
	}
	for _, c := range t.edge {
		if t.mirror != nil && c.W > 0 {
			if err := t.mirror.write(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tree) edgeRoot() tlog.Hash {
	var levels [][]tlog.Hash
	for _, c := range t.edge {
		levels = append(levels, c.hashes)
	}
	return rootOf(levels)
}

// tile returns the n-th tile of level l, rebuilt from the files below if the served one is wrong.
func (t *tree) tile(ctx context.Context, l int, n int64) (content, error) {
	want := tileAt(l, n, t.head.Size)
	if want.W < checkpoint.TileWidth {
		return t.edge[l], nil
	}
	if have := t.known[l]; have.Tile == want {
		return have, nil
	}
	leads, err := t.leads(ctx, l, n)
	if err != nil {
		return content{}, err
	}
	c, err := t.read(ctx, want, leads)
	if err == nil && c.problem != "" {
		if err = t.addFinding(c); err == nil {
			c, err = t.rebuild(ctx, c)
		}
	}
	t.known[l] = c
	return c, err
}

// leads returns the check (see read) of the n-th tile of level l, which must be full, against the
// tile above it.
func (t *tree) leads(ctx context.Context, l int, n int64) (func([]tlog.Hash) string, error) {
	above, err := t.tile(ctx, l+1, n/checkpoint.TileWidth)
	if err != nil {
		return nil, err
	}
	i := n % checkpoint.TileWidth
	root := above.hashes[i]
	return func(hashes []tlog.Hash) string {
		if subtree(hashes) == root {
			return ""
		}
		return fmt.Sprintf("it does not match hash %d of %s", i, above.path())
	}, nil
}

// walk verifies the level-0 tiles from index `first` to the last, with their entry bundles and the
// tiles above them (c2sp.org/tlog-tiles).
func (t *tree) walk(ctx context.Context, first int64) error {
	tiles := (t.head.Size + checkpoint.TileWidth - 1) / checkpoint.TileWidth
	for n := first; n < tiles; n += ahead {
		if err := t.window(ctx, n, min(n+ahead, tiles)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) window(ctx context.Context, first, end int64) error {
	tiles, bundles := make([]content, end-first), make([]content, end-first)
	leads := make([]func([]tlog.Hash) string, end-first)
	for i := range tiles {
		if n := first + int64(i); (n+1)*checkpoint.TileWidth <= t.head.Size {
			var err error
			if leads[i], err = t.leads(ctx, 0, n); err != nil {
				return err
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range tiles {
		group.Go(func() (err error) {
			tiles[i], bundles[i], err = t.leaves(ctx, first+int64(i), leads[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range tiles {
		for _, c := range []content{tiles[i], bundles[i]} {
			if c.problem == "" {
				continue
			}
			if err := t.addFinding(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaves reads the n-th tile of level 0 and its entry bundle. `leads` is nil for the partial tile,
// which openTree has verified.
func (t *tree) leaves(ctx context.Context, n int64, leads func([]tlog.Hash) string) (tile, bundle content, err error) {
	if tile = t.edge[0]; leads != nil {
		if tile, err = t.read(ctx, tileAt(0, n, t.head.Size), leads); err != nil {
			return tile, bundle, err
		}
	}
	check := leads // a wrong tile cannot verify its bundle, so the tile above verifies the bundle
	if tile.problem == "" {
		check = func(hashes []tlog.Hash) string {
			for i := range hashes {
				if hashes[i] != tile.hashes[i] {
					return fmt.Sprintf("entry %d of the bundle does not match its leaf hash in %s", i, tile.path())
				}
			}
			return ""
		}
	}
	bundle, err = t.read(ctx, tileAt(-1, n, t.head.Size), check)
	return tile, bundle, err
}

// subtree returns the root over nodes, whose number must be a power of two.
func subtree(nodes []tlog.Hash) tlog.Hash {
	if len(nodes) == 1 {
		return nodes[0]
	}
	half := len(nodes) / 2
	return tlog.NodeHash(subtree(nodes[:half]), subtree(nodes[half:]))
}

// rootOf returns the root of a tree (RFC 6962 2.1). levels[i] holds the nodes of tile level i
// after the last full tile of that level.
func rootOf(levels [][]tlog.Hash) tlog.Hash {
	root, started := tlog.Hash(sha256.Sum256(nil)), false
	for _, nodes := range levels {
		for len(nodes) > 0 {
			size := len(nodes) & -len(nodes) // number of nodes of the rightmost perfect subtree
			left := subtree(nodes[len(nodes)-size:])
			if started {
				left = tlog.NodeHash(left, root)
			}
			root, started, nodes = left, true, nodes[:len(nodes)-size]
		}
	}
	return root
}
