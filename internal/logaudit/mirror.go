package logaudit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

// Mirror updates a folder to the log's newest checkpoint. Any static file server can
// serve the folder as the log. Mirror writes a file only once it is proven under that
// checkpoint, and the checkpoint last, so the folder is a valid log at any moment. An
// interrupted Mirror continues at the next call.
func Mirror(ctx context.Context, from *Source, dir string, policy *checkpoint.Policy) (Head, error) {
	// #nosec G301 -- public, for a file server
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Head{}, err
	}
	to := folder(dir)
	have, err := to.Head(ctx, policy)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return have, err
	}
	head, err := from.headAfter(ctx, policy, have.Size)
	if err != nil {
		return head, err
	}
	if err := Extends(ctx, from, head, have); err != nil { // before the first write
		return head, err
	}
	t := newTiles(ctx, from, head)
	t.local = to
	for n := have.Size / checkpoint.TileWidth; n*checkpoint.TileWidth < head.Size; n += ahead {
		if err := t.mirror(n); err != nil {
			return head, err
		}
	}
	return head, Replace(filepath.Join(dir, checkpointPath), head.Note)
}

// mirror fetches a window of level-0 tiles from the given one on, the tiles above
// them, and their entry bundles.
func (t *tiles) mirror(first int64) error {
	from, end := first*checkpoint.TileWidth, min((first+ahead)*checkpoint.TileWidth, t.head.Size)
	indexes := make([]int64, 0, end-from)
	for i := from; i < end; i++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, i))
	}
	leaves, err := t.ReadHashes(indexes)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(t.ctx)
	group.SetLimit(parallel)
	for chunk := range slices.Chunk(leaves, checkpoint.TileWidth) {
		n := first
		first++
		group.Go(func() error { return t.bundle(ctx, n, chunk) })
	}
	return group.Wait()
}

// bundle fetches an entry bundle unless the mirror has it. leaves are the verified leaf
// hashes of its entries.
func (t *tiles) bundle(ctx context.Context, n int64, leaves []tlog.Hash) error {
	tile := tileAt(-1, n, t.head.Size)
	if have, err := t.local.read(ctx, tile); err == nil && slices.Equal(have.hashes, leaves) {
		return nil
	}
	c, err := t.from.read(ctx, tile)
	switch {
	case err != nil:
		return err
	case c.problem != "":
		return contradicts(c.path(), nil, "%s", c.problem)
	case !slices.Equal(c.hashes, leaves):
		return contradicts(c.path(), nil, "its entries are not those of %s, which the checkpoint proves", checkpoint.TilePath(tileAt(0, n, t.head.Size)))
	}
	return t.write(tile, c.data)
}

// write stores a file of the mirror. A full tile replaces its partial ones.
func (t *tiles) write(tile tlog.Tile, data []byte) error {
	path := filepath.Join(t.local.Place, filepath.FromSlash(checkpoint.TilePath(tile)))
	// #nosec G301 -- public, for a file server
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := Replace(path, data); err != nil {
		return err
	}
	if tile.W == checkpoint.TileWidth {
		return os.RemoveAll(path + ".p")
	}
	return nil
}

// Replace replaces a file atomically and durably. A reader sees the old content or the
// new one, also after a crash.
func Replace(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails once it is renamed
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
