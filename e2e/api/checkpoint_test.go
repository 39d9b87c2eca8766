package api

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/translog"
)

// logStatus reads the log's status.
func logStatus(c *e2e.Client) (s translog.Status) {
	c.T.Helper()
	c.Want(200, "GET", "/v1/log/status", "", nil).Into(c.T, &s)
	return s
}

// tiles reads tiles through deal-api, as a client of sumdb/tlog does.
type tiles struct{ c *e2e.Client }

func (r tiles) Height() int { return 8 }

func (r tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (r tiles) ReadTiles(all []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(all))
	for i, t := range all {
		a := r.c.Do("GET", "/"+checkpoint.TilePath(t), "", nil)
		if a.Status != 200 || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
			return nil, fmt.Errorf("%s: %d %v", checkpoint.TilePath(t), a.Status, a.Header)
		}
		data[i] = a.Body
	}
	return data, nil
}

// A certificate's leaf is found by sumdb/note and sumdb/tlog, unmodified, through
// the public base URL and nothing else.
func TestCheckpointAndTilesOverTheService(t *testing.T) {
	c := surfaceClient(t)
	text := e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal.Certified(e2e.Patience)
	var cert struct {
		Proof struct {
			LeafIndex int64 `json:"leaf_index"`
		} `json:"log_proof"`
	}
	if err := json.Unmarshal(text, &cert); err != nil {
		t.Fatal(err)
	}
	leaf := cert.Proof.LeafIndex
	e2e.Eventually(t, "a checkpoint covers the leaf", e2e.Patience, func() bool {
		s := logStatus(c)
		return s.CheckpointSize != nil && *s.CheckpointSize > leaf
	})
	status := logStatus(c)
	verifier, err := note.NewVerifier(status.Keys[0].VKey)
	if err != nil {
		t.Fatal(err)
	}
	a := c.Want(200, "GET", "/checkpoint", "", nil)
	opened, err := note.Open(a.Body, note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	at, err := checkpoint.Parse(opened.Text)
	if err != nil || at.Origin != *status.Origin || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" || a.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%+v %v, %v", at, a.Header, err)
	}
	tree := tlog.Tree{N: at.Size, Hash: at.Root}
	proof, err := tlog.ProveRecord(tree.N, leaf, tlog.TileHashReader(tree, tiles{c}))
	if err != nil {
		t.Fatal(err)
	}
	bundle := tlog.Tile{H: 8, L: -1, N: leaf / 256, W: int(min(256, at.Size-leaf/256*256))}
	entries, err := checkpoint.ParseEntryBundle(c.Want(200, "GET", "/"+checkpoint.TilePath(bundle), "", nil).Body, bundle.W)
	if err != nil {
		t.Fatal(err)
	}
	entry := entries[leaf%256]
	if err := tlog.CheckRecord(proof, tree.N, tree.Hash, leaf, tlog.RecordHash(entry)); err != nil {
		t.Error(err)
	}
	payload, err := canon.ParseObject(text)
	if err != nil {
		t.Fatal(err)
	}
	delete(payload, "log_proof")
	delete(payload, "signature")
	if want := sha256.Sum256(canon.Encode(payload)); string(entry) != string(want[:]) {
		t.Error("the leaf holds another entry than the certificate's")
	}
	if older := c.Want(200, "GET", fmt.Sprintf("/v1/log/checkpoint?tree_size=%d", at.Size), "", nil); string(older.Body) != string(a.Body) {
		t.Errorf("the checkpoint by its size is another one: %s", older.Body)
	}

	c.Refused(404, "TILE_NOT_FOUND", "GET", fmt.Sprintf("/tile/0/%03d", at.Size/256+1), "", nil)
	c.Refused(404, "TILE_NOT_FOUND", "GET", "/tile/64/000", "", nil)
	c.Refused(404, "TILE_NOT_FOUND", "GET", "/tile/0/0", "", nil)
	c.Refused(404, "CHECKPOINT_NOT_FOUND", "GET", "/v1/log/checkpoint?tree_size=9007199254740991", "", nil)
	c.Refused(404, "CHECKPOINT_NOT_FOUND", "GET", "/v1/log/checkpoint", "", nil) // no witnesses here
	c.Refused(404, "CHECKPOINT_NOT_FOUND", "GET", "/v1/log/policy", "", nil)
	c.Refused(400, "INVALID_REQUEST", "GET", "/v1/log/checkpoint?tree_size=x", "", nil)
}
