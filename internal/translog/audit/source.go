// Package audit checks a transparency log from the outside. It reads the checkpoint,
// tiles and entry bundles (c2sp.org/tlog-tiles) of a log at a URL, or of a mirror in a
// folder. It trusts only the keys of the given policy.
//
// There are three outcomes:
//   - No error: the files match the signed checkpoint, and all signed checkpoints agree.
//   - A *Contradiction.
//   - Any other error: no verdict, for example because a file could not be read or the log
//     did not sign the checkpoint.
//
// Memory holds two tiles of each level, and a fixed number of level-0 tiles with their bundles.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

const (
	parallel       = 8 // requests in flight
	checkpointPath = "checkpoint"
)

// Contradiction is returned when files do not match the signed checkpoint, or two signed
// checkpoints contradict each other.
type Contradiction struct {
	Findings []Finding

	// Notes holds the signed checkpoints that are evidence against the log. It is nil if a tile or
	// an entry bundle is wrong, because the log does not sign those files.
	Notes [][]byte
}

// Finding is one wrong file: the checkpoint, a tile or an entry bundle.
type Finding struct {
	Path    string `json:"path"`
	Problem string `json:"problem"`
}

func (c *Contradiction) Error() string {
	lines := make([]string, len(c.Findings))
	for i, f := range c.Findings {
		lines[i] = f.Path + ": " + f.Problem
	}
	return strings.Join(lines, "\n")
}

func contradicts(path string, notes [][]byte, format string, args ...any) error {
	return &Contradiction{[]Finding{{path, fmt.Sprintf(format, args...)}}, notes}
}

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

// tileAt returns the n-th tile of a level, which may be partial. Level -1 means an entry bundle.
func tileAt(level int, n, size int64) tlog.Tile {
	t := tlog.Tile{H: checkpoint.TileHeight, L: level, N: n, W: checkpoint.TileWidth}
	if left := size>>(checkpoint.TileHeight*max(level, 0)) - n*checkpoint.TileWidth; left < checkpoint.TileWidth {
		t.W = int(left)
	}
	return t
}

// content is a tile or entry bundle that was read, or a tile that was rebuilt.
type content struct {
	tlog.Tile
	data    []byte
	hashes  []tlog.Hash // leaf hashes for an entry bundle; nil if the file is malformed
	problem string
}

func (c content) path() string { return checkpoint.TilePath(c.Tile) }

// read reads the full file if a partial one is missing: a log may delete it once the full one exists.
func (s *Source) read(ctx context.Context, t tlog.Tile) (content, error) {
	c, full := content{Tile: t}, t
	full.W = checkpoint.TileWidth
	data, err := s.get(ctx, checkpoint.TilePath(t))
	width := t.W
	if errors.Is(err, fs.ErrNotExist) && t.W < full.W {
		if whole, errFull := s.get(ctx, checkpoint.TilePath(full)); errFull == nil {
			data, width, err = whole, full.W, nil
		}
	}
	switch {
	case err != nil:
		return c, err
	case t.L >= 0 && len(data) != width*tlog.HashSize:
		c.problem = fmt.Sprintf("it has %d bytes instead of %d", len(data), width*tlog.HashSize)
		return c, nil
	case t.L >= 0:
		c.data = data[:t.W*tlog.HashSize]
		for hash := range slices.Chunk(c.data, tlog.HashSize) {
			c.hashes = append(c.hashes, tlog.Hash(hash))
		}
		return c, nil
	}
	entries, err := checkpoint.ParseEntryBundle(data, width)
	if err != nil {
		c.problem = err.Error()
		return c, nil
	}
	for _, entry := range entries[:t.W] {
		c.hashes = append(c.hashes, tlog.RecordHash(entry))
	}
	c.data = checkpoint.EntryBundle(entries[:t.W])
	return c, nil
}
