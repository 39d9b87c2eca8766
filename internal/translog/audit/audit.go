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
// Memory holds a fixed number of level-0 tiles with their bundles, and the tiles above them.
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
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

const checkpointPath = "checkpoint"

// Contradiction is returned when files or signed checkpoints contradict a signed checkpoint.
type Contradiction struct {
	Findings []Finding

	// Notes holds the signed checkpoints that are evidence against the log; nil if there are none.
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

// verdict returns nil if there are no findings.
func (c *Contradiction) verdict() error {
	if len(c.Findings) == 0 {
		return nil
	}
	return c
}

// Leaf is a leaf of the log.
type Leaf struct {
	Index int64  `json:"leaf_index"`
	Entry string `json:"entry"` // in hex
}

// Audit verifies every tile and entry of a log. It continues after a wrong file. It returns the leaves whose
// verified entries begin with the mark, in the order of the log, and none if the mark is empty.
func Audit(ctx context.Context, from *Source, head Head, mark []byte) ([]Leaf, error) {
	t := newTree(ctx, from, head, nil)
	t.mark = mark
	err := t.verify(0)
	return t.marked, err
}

// Mirror updates a folder to the newest checkpoint of the log. It writes the checkpoint last, so the files
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
	if err := newTree(ctx, from, head, to).verify(have.Size / checkpoint.TileWidth); err != nil {
		return head, err
	}
	return head, files.Replace(filepath.Join(dir, checkpointPath), head.Note, 0o644)
}

// Watch reads the newest checkpoint and proves that the log extends the head `seen` (see Extends).
// A log may show different trees to different watchers, who detect this by comparing their heads.
func Watch(ctx context.Context, from *Source, policy *checkpoint.Policy, seen Head) (Head, error) {
	head, err := from.headAfter(ctx, policy, seen.Size)
	if err != nil {
		return head, err
	}
	return head, Extends(ctx, from, head, seen)
}

// Extends proves that the tree of `head` extends the tree of `older`. If the log forked or became shorter,
// the error is a Contradiction.
func Extends(ctx context.Context, from *Source, head, older Head) error {
	notes := [][]byte{older.Note, head.Note}
	switch {
	case older.Note != nil && older.Origin != head.Origin:
		return fmt.Errorf("the checkpoints are of different logs: %q now, %q before; use a checkpoint file or mirror folder of the log that you check", head.Origin, older.Origin)
	case older.Size > head.Size:
		return contradicts(checkpointPath, notes, "the log went back from %d to %d leaves", older.Size, head.Size)
	case older.Size == 0:
		return nil
	}
	root := tlog.Hash(head.Root)
	if older.Size < head.Size {
		var err error
		if root, err = tlog.TreeHash(older.Size, newTree(ctx, from, head, nil)); err != nil {
			return err
		}
	}
	if root != tlog.Hash(older.Root) {
		return contradicts(checkpointPath, notes, "the log is forked: its first %d leaves now have the root %v, but had the root %v before", older.Size, root, tlog.Hash(older.Root))
	}
	return nil
}

const (
	attempts   = 5
	retryAfter = time.Second
)

// headAfter retries if the checkpoint of a log at a URL has fewer than `size` leaves, because the
// answer may come from a cache or a replica that lags. In the end it returns even that checkpoint.
func (s *Source) headAfter(ctx context.Context, policy *checkpoint.Policy, size int64) (Head, error) {
	for attempt := 1; ; attempt++ {
		head, err := s.Head(ctx, policy)
		if err != nil || head.Size >= size || attempt == attempts || !s.remote {
			return head, err
		}
		if err := httpclient.Pause(ctx, retryAfter); err != nil {
			return head, err
		}
	}
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

// ReadHead verifies the signatures of a checkpoint. An unsigned checkpoint proves nothing about the log.
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
