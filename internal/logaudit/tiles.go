package logaudit

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

// tiles reads hashes of a tree from its tiles and verifies them. It implements
// tlog.HashReader, with errors that name the wrong tile, and the tlog.TileReader below
// it. It is not safe for concurrent use.
type tiles struct {
	ctx    context.Context
	from   *Source
	head   Head
	local  *Source // the mirror, read first and written to; nil if there is none
	reader tlog.HashReader

	known  map[tlog.Tile]content // verified tiles
	asked  []content             // the last answer of ReadTiles, parents before children
	remote map[tlog.Tile]bool    // the tiles in asked that came from the log
	fresh  bool                  // whether to bypass the mirror
	failed error                 // why a tile could not be read or written
}

// mostKnown is the most verified tiles in memory: enough for the right edge of a tree
// and a window of tiles.
const mostKnown = 4 * ahead

func newTiles(ctx context.Context, from *Source, head Head) *tiles {
	t := &tiles{ctx: ctx, from: from, head: head}
	t.reader = tlog.TileHashReader(head.tree(), t)
	return t
}

// ReadHashes returns verified hashes, or a Contradiction if the tiles do not lead to
// the checkpoint.
func (t *tiles) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes, err := t.reader.ReadHashes(indexes)
	if t.failed == nil && err != nil && t.local != nil {
		// The mirror may be damaged. The log's tiles decide, and replace those of the mirror.
		t.fresh = true
		hashes, err = t.reader.ReadHashes(indexes)
		t.fresh = false
	}
	switch {
	case t.failed != nil:
		return nil, t.failed
	case err != nil:
		return nil, &Contradiction{Findings: t.wrong(), Notes: [][]byte{t.head.Note}}
	}
	return hashes, nil
}

// wrong names the tiles that do not lead to the tile above them. The tiles at the
// right edge lead to the checkpoint only together, so if that fails it names them all.
func (t *tiles) wrong() (findings []Finding) {
	edge := make([][]tlog.Hash, 8)
	for _, c := range t.asked {
		if c.W < checkpoint.TileWidth {
			edge[c.L] = c.hashes // #nosec G602 -- a tree of 2^63 leaves has 8 levels of tiles
			findings = append(findings, Finding{c.path(), "the tiles at the right edge do not lead to the checkpoint, and this is one of them"})
		}
	}
	if rootOf(edge) != tlog.Hash(t.head.Root) {
		return findings
	}
	findings = nil
	for _, c := range t.asked {
		above := tileAt(c.L+1, c.N/checkpoint.TileWidth, t.head.Size)
		for _, parent := range t.asked {
			if c.W == checkpoint.TileWidth && parent.Tile == above && subtree(c.hashes) != parent.hashes[c.N%checkpoint.TileWidth] {
				findings = append(findings, Finding{c.path(), "its root is not the hash in " + parent.path()})
			}
		}
	}
	return findings
}

// Height implements tlog.TileReader.
func (t *tiles) Height() int { return checkpoint.TileHeight }

// ReadTiles implements tlog.TileReader.
func (t *tiles) ReadTiles(want []tlog.Tile) ([][]byte, error) {
	t.asked, t.remote = make([]content, len(want)), map[tlog.Tile]bool{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(t.ctx)
	group.SetLimit(parallel)
	for i, tile := range want {
		if t.asked[i] = t.known[tile]; t.asked[i].data != nil {
			continue
		}
		group.Go(func() error {
			c, remote, err := t.fetch(ctx, tile)
			if err == nil && c.problem != "" {
				err = contradicts(c.path(), nil, "%s", c.problem)
			}
			t.asked[i] = c
			mu.Lock()
			defer mu.Unlock()
			t.remote[tile] = remote
			return err
		})
	}
	t.failed = group.Wait()
	data := make([][]byte, len(want))
	for i, c := range t.asked {
		data[i] = c.data
	}
	return data, t.failed
}

// SaveTiles implements tlog.TileReader.
func (t *tiles) SaveTiles(verified []tlog.Tile, _ [][]byte) {
	if t.known == nil || len(t.known) > mostKnown {
		t.known = map[tlog.Tile]content{}
	}
	for i, tile := range verified {
		t.known[tile] = t.asked[i]
		if t.local != nil && t.remote[tile] {
			t.failed = errors.Join(t.failed, t.write(tile, t.asked[i].data))
		}
	}
}

// fetch reads a tile from the mirror or, if that lacks it, from the log.
func (t *tiles) fetch(ctx context.Context, tile tlog.Tile) (c content, remote bool, err error) {
	if t.local != nil && !t.fresh {
		if c, err := t.local.read(ctx, tile); err == nil && c.problem == "" {
			return c, false, nil
		}
	}
	c, err = t.from.read(ctx, tile)
	return c, true, err
}
