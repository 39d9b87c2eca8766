package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

const (
	parallel = 8  // requests in flight
	ahead    = 32 // level-0 tiles that are in memory at a time

	maxFindings = 20 // an audit stops at about this number of findings
)

// tree reads the files of a log and verifies them from the top down. The root in the checkpoint
// proves all partial tiles together. Each hash in a tile proves one full tile of the level below.
// Each tile of level 0 proves its entry bundle. tree is a tlog.HashReader and its tlog.TileReader.
type tree struct {
	ctx    context.Context
	from   *Source
	mirror *Source // has correct copies of some files, and gets those of the others; nil if there is none
	head   Head

	place  *Source              // where ReadTiles reads
	asked  []tlog.Tile          // by the last ReadTiles, each tile after the one above it
	got    [][]byte             // nil if the last ReadTiles failed
	proven map[tlog.Tile][]byte // tiles of the last read that was proven
	err    error                // of writing into the mirror

	mark   []byte // what the entries of the wanted leaves begin with; empty: no leaf is wanted
	marked []Leaf // the wanted leaves of the verified bundles
}

func newTree(ctx context.Context, from *Source, head Head, mirror *Source) *tree {
	return &tree{ctx: ctx, from: from, mirror: mirror, head: head}
}

// ReadHashes returns proven nodes of the tree. If files contradict the checkpoint, it names them.
func (t *tree) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	reader := tlog.TileHashReader(tlog.Tree{N: t.head.Size, Hash: t.head.Root}, t)
	if t.place = t.mirror; t.place != nil {
		if hashes, err := reader.ReadHashes(indexes); err == nil {
			return hashes, nil
		}
	}
	t.place = t.from
	if hashes, err = reader.ReadHashes(indexes); err == nil {
		return hashes, t.err
	}
	if t.got == nil {
		return nil, err // a file is unreadable or malformed
	}
	return nil, t.diagnose()
}

// Height returns the height of the tiles.
func (t *tree) Height() int { return checkpoint.TileHeight }

// ReadTiles returns tiles that are not proven yet.
func (t *tree) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	t.asked, t.got = tiles, nil
	group, ctx := errgroup.WithContext(t.ctx)
	group.SetLimit(parallel)
	for i, tile := range tiles {
		if data[i] = t.proven[tile]; data[i] == nil {
			group.Go(func() (err error) {
				data[i], _, err = t.place.read(ctx, tile)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	t.got = data
	return data, nil
}

// SaveTiles takes tiles that are proven.
func (t *tree) SaveTiles(tiles []tlog.Tile, data [][]byte) {
	before := t.proven
	t.proven = map[tlog.Tile][]byte{}
	for i, tile := range tiles {
		t.proven[tile] = data[i]
		if t.mirror != nil && t.place != t.mirror && before[tile] == nil && t.err == nil {
			t.err = t.mirror.write(tile, data[i])
		}
	}
}

// diagnose returns a Contradiction with the full tiles of the last read that are wrong, or the checkpoint.
func (t *tree) diagnose() error {
	found, good := &Contradiction{}, map[tlog.Tile][]byte{}
	var partial []string
	for i, tile := range t.asked {
		above := tlog.Tile{L: tile.L + 1, N: tile.N / checkpoint.TileWidth}
		at := int(tile.N%checkpoint.TileWidth) * tlog.HashSize
		switch {
		case tile.W < checkpoint.TileWidth:
			partial = append(partial, checkpoint.TilePath(tile))
		case good[above] == nil:
			continue // the tile above is wrong
		case !bytes.Equal(subtree(t.got[i]), good[above][at:at+tlog.HashSize]):
			found.Findings = append(found.Findings, Finding{checkpoint.TilePath(tile), fmt.Sprintf("it does not match hash %d of tile %d of level %d", at/tlog.HashSize, above.N, above.L)})
			continue
		}
		good[tlog.Tile{L: tile.L, N: tile.N}] = t.got[i]
	}
	if len(found.Findings) > 0 {
		return found
	}
	return contradicts(checkpointPath, [][]byte{t.head.Note}, "its root does not match the partial tiles (%s)", strings.Join(partial, ", "))
}

// subtree returns the root over nodes, whose number must be a power of two.
func subtree(nodes []byte) []byte {
	if len(nodes) == tlog.HashSize {
		return nodes
	}
	left, right := subtree(nodes[:len(nodes)/2]), subtree(nodes[len(nodes)/2:])
	root := tlog.NodeHash(tlog.Hash(left), tlog.Hash(right))
	return root[:]
}

// verify verifies the partial tiles and then, from index `first` to the last, the level-0 tiles
// with their entry bundles and the tiles above them (c2sp.org/tlog-tiles). A file below a wrong tile
// is not verified.
func (t *tree) verify(first int64) error {
	root, err := tlog.TreeHash(t.head.Size, t)
	if err == nil && root != tlog.Hash(t.head.Root) { // possible only for the empty tree
		err = contradicts(checkpointPath, [][]byte{t.head.Note}, "its root is not that of the empty tree")
	}
	if err != nil {
		return err
	}
	all := &Contradiction{}
	tiles := (t.head.Size + checkpoint.TileWidth - 1) / checkpoint.TileWidth
	for n := first; n < tiles && len(all.Findings) < maxFindings; n += ahead {
		err := t.window(n, min(n+ahead, tiles))
		found, wrong := errors.AsType[*Contradiction](err)
		if err != nil && !wrong && len(all.Findings) == 0 {
			return err
		}
		if err != nil && !wrong {
			break
		}
		if wrong && !slices.Contains(all.Findings, found.Findings[0]) { // a tile above may be wrong for several windows
			all.Findings = append(all.Findings, found.Findings...)
		}
	}
	return all.verdict()
}

// window verifies the level-0 tiles first, …, end-1 and their bundles.
func (t *tree) window(first, end int64) error {
	var indexes []int64
	for n := first; n < end; n++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, n*checkpoint.TileWidth))
	}
	if _, err := t.ReadHashes(indexes); err != nil {
		return err
	}
	wrong, marked := make([]*Contradiction, len(indexes)), make([][]Leaf, len(indexes))
	group, ctx := errgroup.WithContext(t.ctx)
	group.SetLimit(parallel)
	for i := range wrong {
		group.Go(func() error {
			var err error
			marked[i], err = t.bundle(ctx, first+int64(i))
			if errors.As(err, &wrong[i]) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	t.marked = slices.Concat(append([][]Leaf{t.marked}, marked...)...)
	all := &Contradiction{}
	for _, found := range wrong {
		if found != nil {
			all.Findings = append(all.Findings, found.Findings...)
		}
	}
	return all.verdict()
}

// bundle verifies the n-th entry bundle under a proven tile, and stores it in the mirror. It returns the
// leaves with the mark.
func (t *tree) bundle(ctx context.Context, n int64) ([]Leaf, error) {
	tile := tlog.Tile{H: checkpoint.TileHeight, N: n, W: int(min(checkpoint.TileWidth, t.head.Size-n*checkpoint.TileWidth))}
	bundle, want := tile, t.proven[tile]
	bundle.L = -1
	if t.mirror != nil {
		if _, leaves, err := t.mirror.read(ctx, bundle); err == nil && bytes.Equal(leaves, want) {
			return nil, nil
		}
	}
	data, leaves, err := t.from.read(ctx, bundle)
	if err == nil && !bytes.Equal(leaves, want) {
		err = contradicts(checkpoint.TilePath(bundle), nil, "its entries do not match the leaf hashes in %s", checkpoint.TilePath(tile))
	}
	if err == nil && t.mirror != nil {
		err = t.mirror.write(bundle, data)
	}
	if err != nil || len(t.mark) == 0 {
		return nil, err
	}
	entries, err := checkpoint.ParseEntryBundle(data, bundle.W)
	var marked []Leaf
	for i, entry := range entries {
		if bytes.HasPrefix(entry, t.mark) {
			marked = append(marked, Leaf{n*checkpoint.TileWidth + int64(i), hex.EncodeToString(entry)})
		}
	}
	return marked, err
}
