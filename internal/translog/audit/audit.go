package audit

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

const maxFindings = 20 // an audit stops at this number of findings

// Audit verifies every tile and entry of a log. If a tile is wrong, Audit continues with
// hashes that it computes from the files below that tile.
func Audit(ctx context.Context, from *Source, head Head) error {
	t, err := openTree(ctx, from, head, nil, maxFindings)
	if err == nil {
		err = t.walk(ctx, 0)
	}
	return t.verdict(err)
}

// repairEdge finds out why the partial tiles do not lead to the root in the checkpoint. It
// recomputes them from the files below them, and records each wrong tile, or else the checkpoint.
func (t *tree) repairEdge(ctx context.Context) error {
	served := slices.Clone(t.edge)
	for l, c := range served {
		var err error
		switch {
		case c.W == 0:
			continue
		case c.problem != "":
			err = t.addFinding(c)
		}
		if err == nil {
			t.edge[l], err = t.rebuild(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	root := t.edgeRoot()
	for l, c := range served {
		if c.problem != "" || slices.Equal(c.hashes, t.edge[l].hashes) {
			continue
		}
		c.problem = "its hashes do not match the files one level below it"
		if root != tlog.Hash(t.head.Root) {
			c.problem += "; the root in the checkpoint matches neither the tile's hashes nor those files"
		}
		if err := t.addFinding(c); err != nil {
			return err
		}
	}
	if len(t.findings) == 0 {
		t.notes = [][]byte{t.head.Note}
		t.findings = []Finding{{checkpointPath, fmt.Sprintf("the tiles lead to the root %v, but the root in the checkpoint is %v", root, tlog.Hash(t.head.Root))}}
		return errEnough
	}
	return nil
}

// rebuild returns the tile c with hashes computed from the files one level below. A hash whose tile
// is malformed stays as in c. After a malformed bundle, rebuild returns errEnough.
func (t *tree) rebuild(ctx context.Context, c content) (content, error) {
	built := content{Tile: c.Tile, hashes: make([]tlog.Hash, c.W)}
	if c.L == 0 {
		bundle, err := t.from.read(ctx, tileAt(-1, c.N, t.head.Size))
		if bundle.problem != "" {
			_ = t.addFinding(bundle)
			err = errEnough
		}
		built.hashes = bundle.hashes
		return built, err
	}
	copy(built.hashes, c.hashes)
	for i := range built.hashes {
		below, err := t.from.read(ctx, tileAt(c.L-1, c.N*checkpoint.TileWidth+int64(i), t.head.Size))
		if err != nil {
			return built, err
		}
		if below.problem == "" {
			built.hashes[i] = subtree(below.hashes)
		}
	}
	return built, nil
}
