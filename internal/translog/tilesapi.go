package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/platform/httpcache"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// maxBundles is the maximum number of entry bundles (c2sp.org/tlog-tiles) that are read from
// the database at the same time.
const maxBundles = 4

var errNoTile = errors.New("no such tile")

// serveTile serves a tile or an entry bundle (c2sp.org/tlog-tiles). The path of a partial
// tile includes its width. So the answer for a path never changes, and a cache may keep it
// for ever.
func (l *Log) serveTile(r *http.Request) (any, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	t, err := checkpoint.ParseTilePath(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTile, err)
	}
	body, err := c.tile(r.Context(), t)
	if err != nil {
		return nil, l.checks.recordFailure(r.Context(), err)
	}
	return plain{"application/octet-stream", httpcache.Fixed, body}, nil
}

func (c *checkpoints) tile(ctx context.Context, t tlog.Tile) ([]byte, error) {
	under := c.latest.Load()
	if under == nil || !covered(t, under.Size) { // read the newest checkpoint: another replica may have signed it
		var err error
		if under, err = c.newest(ctx); err != nil {
			return nil, err
		}
		if !covered(t, under.Size) {
			return nil, fmt.Errorf("%w: %s is not complete in the tree of the newest checkpoint, which has size %d", errNoTile, checkpoint.TilePath(t), under.Size)
		}
	}
	ids := make([]compact.NodeID, t.W) // the nodes of the tile, or the leaves of the entry bundle
	for i := range ids {
		ids[i] = compact.NewNodeID(uint(max(t.L, 0))*checkpoint.TileHeight, uint64(t.N)*checkpoint.TileWidth+uint64(i))
	}
	hashes, err := c.log.tree.nodes(ctx, root{under.Size, under.Root[:]}, ids)
	if err != nil {
		return nil, err
	}
	if t.L >= 0 {
		return bytes.Join(hashes, nil), nil
	}
	select { // bundle reads have their own limit, so that public requests for bundles do not delay proofs
	case c.bundles <- struct{}{}:
		defer func() { <-c.bundles }()
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
	first := uint64(t.N) * checkpoint.TileWidth
	entries, err := c.log.store.readEntries(ctx, first, first+uint64(t.W))
	if err != nil {
		return nil, err
	}
	for i, entry := range entries {
		if !bytes.Equal(hasher.HashLeaf(entry), hashes[i]) {
			return nil, fmt.Errorf("%w: the entry in the row of leaf %d does not match the tree", ErrInconsistent, first+uint64(i))
		}
	}
	return checkpoint.EntryBundle(entries), nil
}

// covered reports whether a tree of `size` leaves has all leaves of the entry bundle, or all leaves
// under the nodes of the tile.
func covered(t tlog.Tile, size int64) bool {
	level := uint(max(t.L, 0)) * checkpoint.TileHeight
	have := uint64(size) >> level
	return uint64(t.N) <= have/checkpoint.TileWidth && uint64(t.N)*checkpoint.TileWidth+uint64(t.W) <= have
}
