package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/compact"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

const textPlain = "text/plain; charset=utf-8"

// Status describes the checkpoints that the log publishes.
type Status struct {
	Origin         *string       `json:"origin"` // null if the log publishes no checkpoints
	Keys           []VerifierKey `json:"keys"`
	CheckpointSize *int64        `json:"checkpoint_size"` // of the newest checkpoint; null if there is none
	CertifiedSize  *int64        `json:"certified_size"`  // the largest size that met the witnesses' quorum; null if none did
	Quorum         bool          `json:"quorum"`          // whether the witness policy demands cosignatures
}

// VerifierKey is a key that signs checkpoints now, signed them before, or will sign them.
type VerifierKey struct {
	VKey  string `json:"vkey"`
	State string `json:"state"` // next, current or retired
}

func (l *Log) serveStatus(r *http.Request) (any, error) {
	c := l.checkpoints
	if c == nil {
		return Status{Keys: []VerifierKey{}}, nil
	}
	s := Status{Origin: &c.Origin, Keys: c.verifierKeys(), Quorum: c.Policy != nil && c.Policy.Demands()}
	newest, err := c.newest(r.Context())
	switch {
	case errors.Is(err, errNoCheckpoint):
		return s, nil
	case err != nil:
		return nil, err
	}
	s.CheckpointSize = &newest.Size
	if certified := c.certified.Load(); certified > 0 {
		s.CertifiedSize = &certified
	}
	return s, nil
}

func (c *checkpoints) verifierKeys() []VerifierKey {
	list := []VerifierKey{{c.own.String(), keys.Current}}
	for _, key := range c.Retired {
		if key.ID() != c.own.ID() {
			list = append(list, VerifierKey{key.String(), keys.Retired})
		}
	}
	for _, key := range c.log.checks.keys.Keys() {
		if of, ok := c.deployment[key.Label]; ok {
			list = append(list, VerifierKey{of.String(), key.State})
		}
	}
	return list
}

func (l *Log) serveCheckpoint(r *http.Request) (any, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	newest, err := c.newest(r.Context())
	if err != nil {
		return nil, err
	}
	return plain{textPlain, "no-store", newest.text()}, nil
}

// serveCheckpointOf serves the checkpoint of tree_size, or else the largest one that met the quorum.
func (l *Log) serveCheckpointOf(r *http.Request) (any, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	q := readQuery(r)
	size := q.integer("tree_size")
	if q.err != nil {
		return nil, q.err
	}
	if size == nil {
		if _, err := c.newest(r.Context()); err != nil { // newest raises c.certified
			return nil, err
		}
		certified := c.certified.Load()
		if certified == 0 {
			return nil, fmt.Errorf("%w has met the quorum of the witnesses yet", errNoCheckpoint)
		}
		size = &certified
	}
	of, err := c.asked(r.Context(), *size)
	if err != nil {
		return nil, l.checks.recordFailure(r.Context(), err)
	}
	return plain{textPlain, "no-store", of.text()}, nil
}

func (l *Log) servePolicy(*http.Request) (any, error) {
	if l.checkpoints == nil || l.checkpoints.Policy == nil {
		return nil, fmt.Errorf("%w is witnessed: this log has no witness policy", errNoCheckpoint)
	}
	return plain{textPlain, web.CachePublic, l.checkpoints.PolicyText}, nil
}

func (l *Log) checkpointing() (*checkpoints, error) {
	if l.checkpoints == nil {
		return nil, fmt.Errorf("%w is published: this log has no origin and no log key", errNoCheckpoint)
	}
	return l.checkpoints, nil
}

// TLogProof returns the .tlog-proof of a leaf (c2sp.org/tlog-proof), which leads to the largest checkpoint
// that met the quorum, or else to the newest one. With `first` it leads to the smallest checkpoint that
// covers the leaf and met the quorum when it was cosigned: only its cosignatures show how old the leaf is.
func (l *Log) TLogProof(ctx context.Context, q LeafQuery, first bool) ([]byte, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	of, err := c.newest(ctx)
	if err != nil {
		return nil, err
	}
	if first {
		if q, of, err = c.firstOver(ctx, q, of); err != nil {
			return nil, l.checks.recordFailure(ctx, err)
		}
		return l.tlogProof(ctx, q, of)
	}
	if certified := c.certified.Load(); certified > 0 {
		// Even if `of` has the same size, it may lack cosignatures that were stored since it was read.
		better, err := c.asked(ctx, certified)
		if err != nil {
			return nil, l.checks.recordFailure(ctx, err)
		}
		if proof, err := l.tlogProof(ctx, q, better); !errors.Is(err, ErrNotFound) && !errors.Is(err, errNoHead) {
			return proof, err
		}
	}
	return l.tlogProof(ctx, q, of)
}

// firstOver returns the smallest checkpoint that covers the leaf and met the quorum, or else `newest`.
func (c *checkpoints) firstOver(ctx context.Context, q LeafQuery, newest *signedCheckpoint) (LeafQuery, *signedCheckpoint, error) {
	if q.LeafIndex == nil {
		q.TreeSize = &newest.Size
		in, err := c.log.Inclusion(ctx, q)
		if err != nil {
			return q, nil, err
		}
		q.LeafIndex = &in.LeafIndex
	}
	size, err := c.firstWitnessed(ctx, *q.LeafIndex)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return q, newest, nil
	case err != nil:
		return q, nil, err
	}
	of, err := c.asked(ctx, size)
	return q, of, err
}

func (c *checkpoints) firstWitnessed(ctx context.Context, leaf int64) (size int64, err error) {
	done, err := place(ctx, c.reading)
	if err != nil {
		return 0, err
	}
	defer done()
	if err = c.log.store.pool.QueryRow(ctx, sqlFirstWitnessed, leaf).Scan(&size); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		err = fromDatabase(err)
	}
	return size, err
}

func (l *Log) tlogProof(ctx context.Context, q LeafQuery, under *signedCheckpoint) ([]byte, error) {
	q.TreeSize = &under.Size
	in, err := l.Inclusion(ctx, q)
	if err != nil {
		return nil, err
	}
	proof := checkpoint.Proof{Index: in.LeafIndex, Path: make([][32]byte, len(in.Path)), Note: under.text()}
	for i, hash := range in.Path {
		proof.Path[i], _ = canon.ParseHash(hash)
	}
	return proof.Marshal(), nil
}

func (l *Log) serveTLogProof(r *http.Request) (any, error) {
	q := readQuery(r)
	leaf := q.leaf()
	first, given := q.one("first")
	if given && first != "1" {
		q.refuse("first is %.40q: send first=1 to get the first checkpoint that met the quorum, or leave it out", first)
	}
	if q.err != nil {
		return nil, q.err
	}
	proof, err := l.TLogProof(r.Context(), leaf, given)
	return plain{textPlain, "no-store", proof}, err
}

// How many public reads have a statement of their own at once: appends need the other connections. Entry bundles have
// places of their own, so that they do not delay proofs.
const maxBundles, maxReading = 2, 2

// place waits for one of the places for a kind of reads; client networks take turns. The caller MUST call `done`.
func place(ctx context.Context, places *budget.Budget) (done func(), err error) {
	call := budget.From(ctx)
	call.Rest()
	t, err := places.Take(ctx, call.Network(), 1)
	if err != nil {
		return nil, unavailable(err)
	}
	return t.Return, nil
}

// asked is `at` for a public read.
func (c *checkpoints) asked(ctx context.Context, size int64) (*signedCheckpoint, error) {
	done, err := place(ctx, c.reading)
	if err != nil {
		return nil, err
	}
	defer done()
	return c.at(ctx, size)
}

var errNoTile = errors.New("no such tile")

// serveTile serves a tile or an entry bundle. A partial tile's path includes its width and so never changes.
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
	return plain{"application/octet-stream", web.CacheFixed, body}, nil
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
	done, err := place(ctx, c.bundles)
	if err != nil {
		return nil, err
	}
	defer done()
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

// covered reports whether a tree of `size` leaves has all leaves of the bundle or under the tile.
func covered(t tlog.Tile, size int64) bool {
	level := uint(max(t.L, 0)) * checkpoint.TileHeight
	have := uint64(size) >> level
	return uint64(t.N) <= have/checkpoint.TileWidth && uint64(t.N)*checkpoint.TileWidth+uint64(t.W) <= have
}
