package audit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// Mirror updates a folder, which a static file server can serve, to the newest checkpoint of the
// log. It verifies each file before writing it, and writes the checkpoint last. So the files
// always match the checkpoint in the folder. The next call continues an interrupted one.
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
	if err := Extends(ctx, from, head, have); err != nil { // a forked log must not change the mirror
		return head, err
	}
	t, err := openTree(ctx, from, head, to, 1)
	if err == nil {
		err = t.walk(ctx, have.Size/checkpoint.TileWidth)
	}
	if err := t.verdict(err); err != nil {
		return head, err
	}
	return head, files.Replace(filepath.Join(dir, checkpointPath), head.Note, 0o644)
}

// write stores a file in the folder of a mirror. A full file replaces its partial versions.
func (s *Source) write(c content) error {
	path := filepath.Join(s.Place, filepath.FromSlash(c.path()))
	// #nosec G301 -- public, for a file server
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := files.Replace(path, c.data, 0o644); err != nil {
		return err
	}
	if c.W == checkpoint.TileWidth {
		return os.RemoveAll(path + ".p")
	}
	return nil
}
