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

// Mirror brings a folder up to the log's newest checkpoint: a folder that any
// static file server can serve as the log. A file is written only when it is
// proven to be under that checkpoint, and the checkpoint last, so that the folder
// is a log at any moment. A mirror that was interrupted goes on where it was.
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
	if err := Extends(ctx, from, head, have); err != nil { // before anything is written
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

// mirror brings some tiles of level 0, those above them, and their entries.
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

// bundle brings an entry bundle, unless the mirror has it. leaves are verified.
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

// write stores a file of the mirror. A full tile replaces the partial ones.
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

// Replace writes a file that others read: they see the old one or the new one, and
// so does whoever reads it after a crash.
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
