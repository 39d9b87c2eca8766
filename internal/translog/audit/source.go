package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// Source reads the files of a log from a URL or a folder.
type Source struct {
	Place  string // the URL or folder
	remote bool
	get    func(ctx context.Context, path string) ([]byte, error)
}

// Open returns the log at a base URL or in a folder. It reads no file of the log yet.
func Open(place string) (*Source, error) {
	if !strings.HasPrefix(place, "http://") && !strings.HasPrefix(place, "https://") {
		if info, err := os.Stat(place); err != nil {
			return nil, err
		} else if !info.IsDir() {
			return nil, fmt.Errorf("%s is not a folder: pass a folder or an http(s) URL", place)
		}
		return folder(place), nil
	}
	client, err := httpclient.New(place)
	if err != nil {
		return nil, err
	}
	return &Source{client.BaseURL(), true, func(ctx context.Context, path string) ([]byte, error) {
		data, err := client.Get(ctx, "/"+path, "")
		if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && refused.Status == http.StatusNotFound {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", client.BaseURL(), path, err)
		}
		return data, nil
	}}, nil
}

func folder(dir string) *Source {
	return &Source{dir, false, func(_ context.Context, path string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
	}}
}

// Head is a checkpoint signed by a log that the policy lists.
type Head struct {
	checkpoint.Checkpoint
	Note      []byte
	Witnesses []string // the policy's witnesses that cosigned the checkpoint
	Quorum    error    // nil if the policy's quorum is met; else wraps checkpoint.ErrQuorum
}

// Head reads the log's checkpoint and verifies its signatures.
func (s *Source) Head(ctx context.Context, policy *checkpoint.Policy) (Head, error) {
	signed, err := s.get(ctx, checkpointPath)
	if err != nil {
		return Head{}, err
	}
	return ReadHead(signed, policy)
}

// ReadHead verifies the signatures of a checkpoint. A checkpoint that the log did not
// sign proves nothing about the log, so the error is not a Contradiction.
func ReadHead(signed []byte, policy *checkpoint.Policy) (Head, error) {
	c, witnesses, err := policy.Verify(signed)
	if err != nil && !errors.Is(err, checkpoint.ErrQuorum) {
		return Head{}, fmt.Errorf("the %s cannot be verified as one of this log: %w", checkpointPath, err)
	}
	return Head{c, signed, witnesses, err}, nil
}

// read returns a tile or an entry bundle (level -1), and the leaf hashes of a bundle. It reads the
// full file if a partial one is missing: a log may delete it once the full one exists. A malformed
// file is a Contradiction.
func (s *Source) read(ctx context.Context, t tlog.Tile) (data []byte, leaves []byte, err error) {
	path, width := checkpoint.TilePath(t), t.W
	data, err = s.get(ctx, path)
	if errors.Is(err, fs.ErrNotExist) && width < checkpoint.TileWidth {
		full := tlog.Tile{H: t.H, L: t.L, N: t.N, W: checkpoint.TileWidth}
		if whole, errFull := s.get(ctx, checkpoint.TilePath(full)); errFull == nil {
			data, width, err = whole, full.W, nil
		}
	}
	switch {
	case err != nil:
		return nil, nil, err
	case t.L >= 0 && len(data) != width*tlog.HashSize:
		return nil, nil, contradicts(path, nil, "it has %d bytes instead of %d", len(data), width*tlog.HashSize)
	case t.L >= 0:
		return data[:t.W*tlog.HashSize], nil, nil
	}
	entries, err := checkpoint.ParseEntryBundle(data, width)
	if err != nil {
		return nil, nil, contradicts(path, nil, "%v", err)
	}
	for _, entry := range entries[:t.W] {
		hash := tlog.RecordHash(entry)
		leaves = append(leaves, hash[:]...)
	}
	return checkpoint.EntryBundle(entries[:t.W]), leaves, nil
}

// write stores a file in the folder of a mirror. A full file replaces its partial versions.
func (s *Source) write(t tlog.Tile, data []byte) error {
	path := filepath.Join(s.Place, filepath.FromSlash(checkpoint.TilePath(t)))
	// #nosec G301 -- public, for a file server
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := files.Replace(path, data, 0o644); err != nil {
		return err
	}
	if t.W == checkpoint.TileWidth {
		return os.RemoveAll(path + ".p")
	}
	return nil
}
