package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/translog"
)

func raw(t testing.TB, hashes ...string) (all [][]byte) {
	t.Helper()
	for _, h := range hashes {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// deal-api serves the log. Tree heads are signed, an old head never changes, and a newer head extends
// an older head. A query by index and a query by entry find the same leaf. The libraries sumdb/note
// and sumdb/tlog verify the leaf with the checkpoint and the tiles.
func TestLogReads(t *testing.T) {
	c := newClient(t)
	trusted := e2e.Trusted(t, e2e.Shared(t))
	verifies := func(message []byte, signature string) bool {
		_, err := trusted.SignerOf(message, signature)
		return err == nil
	}
	head := func(query string) (h translog.TreeHead) {
		t.Helper()
		c.Want(200, "GET", "/v1/log/tree-head"+query, "", nil).Into(t, &h)
		if _, err := trusted.SignerOf(h.Message(), h.Signature); err != nil {
			t.Errorf("signature of the head %+v: %v", h, err)
		}
		return h
	}
	empty := sha256.Sum256(nil)
	if first := head("?tree_size=0"); first.TreeSize != 0 || first.RootHash != hex.EncodeToString(empty[:]) {
		t.Errorf("the head of size 0 is %+v, want the root %x", first, empty)
	}
	computed(c)
	before := head("")
	_, _, text := computed(c)
	var cert struct {
		Proof struct {
			TreeSize  int64 `json:"tree_size"`
			LeafIndex int64 `json:"leaf_index"`
		} `json:"log_proof"`
	}
	e2e.Answer{Body: text}.Into(t, &cert)
	leaf := cert.Proof.LeafIndex
	after := head("")
	if after.TreeSize <= before.TreeSize || after.TreeSize < cert.Proof.TreeSize {
		t.Errorf("the tree has %d leaves, want more than before, %d, and at least the proof's %d", after.TreeSize, before.TreeSize, cert.Proof.TreeSize)
	}
	if again := head(fmt.Sprintf("?tree_size=%d", before.TreeSize)); again != before {
		t.Errorf("the head of size %d is %+v, want %+v as before", before.TreeSize, again, before)
	}

	// SPEC 2.5: the entry is the digest of the certificate without signature and log_proof.
	payload := e2e.Decoded(t, text)
	delete(payload, "log_proof")
	delete(payload, "signature")
	entry := sha256.Sum256(canonical(t, e2e.Encoded(t, payload)))
	byEntry, byIndex := fmt.Sprintf("entry=%x", entry), fmt.Sprintf("leaf_index=%d", leaf)
	for _, query := range []string{byEntry, byIndex, byEntry + "&" + byIndex, fmt.Sprintf("%s&tree_size=%d", byEntry, cert.Proof.TreeSize)} {
		var p translog.Inclusion
		c.Want(200, "GET", "/v1/log/proof?"+query, "", nil).Into(t, &p)
		if p.Entry != hex.EncodeToString(entry[:]) || p.LeafIndex != leaf || !verifies(p.Message(), p.Signature) {
			t.Errorf("GET /v1/log/proof?%s: %+v, want entry %x, leaf index %d and a valid signature", query, p, entry, leaf)
		}
		leafHash := rfc6962.DefaultHasher.HashLeaf(entry[:])
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(p.LeafIndex), uint64(p.TreeSize), leafHash, raw(t, p.Path...), raw(t, p.RootHash)[0]); err != nil {
			t.Errorf("inclusion proof for %s: %v", query, err)
		}
	}
	var grown translog.Consistency
	c.Want(200, "GET", fmt.Sprintf("/v1/log/consistency?first=%d", before.TreeSize), "", nil).Into(t, &grown)
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(grown.First.TreeSize), uint64(grown.Second.TreeSize), raw(t, grown.Path...), raw(t, grown.First.RootHash)[0], raw(t, grown.Second.RootHash)[0]); err != nil || grown.First != before ||
		!verifies(grown.Second.Message(), grown.Second.Signature) {
		t.Errorf("the consistency proof %+v does not lead from %+v to a signed head: %v", grown, before, err)
	}

	var status translog.Status
	e2e.Eventually(t, "a checkpoint covers the leaf", e2e.DefaultTimeout, func() bool {
		c.Want(200, "GET", "/v1/log/status", "", nil).Into(t, &status)
		return status.CheckpointSize != nil && *status.CheckpointSize > leaf
	})
	verifier, err := note.NewVerifier(status.Keys[0].VKey)
	if err != nil {
		t.Fatal(err)
	}
	signed := c.Want(200, "GET", "/checkpoint", "", nil)
	opened, err := note.Open(signed.Body, note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	at, err := checkpoint.Parse(opened.Text)
	if err != nil || at.Origin != *status.Origin || signed.Header.Get("Content-Type") != "text/plain; charset=utf-8" || signed.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("checkpoint %+v with header %v (%v), want origin %s, text/plain and no-store", at, signed.Header, err, *status.Origin)
	}
	tree := tlog.Tree{N: at.Size, Hash: at.Root}
	found, err := tlog.ProveRecord(tree.N, leaf, tlog.TileHashReader(tree, tiles{c}))
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckRecord(found, tree.N, tree.Hash, leaf, tlog.RecordHash(entry[:])); err != nil {
		t.Errorf("leaf %d under the checkpoint of size %d: %v", leaf, at.Size, err)
	}
	// This stack has no witnesses, so no checkpoint has met a quorum, and there is no policy.
	c.Refused(404, "CHECKPOINT_NOT_FOUND", "GET", "/v1/log/checkpoint", "", nil)
	c.Refused(404, "CHECKPOINT_NOT_FOUND", "GET", "/v1/log/policy", "", nil)
	if bySize := c.Want(200, "GET", fmt.Sprintf("/v1/log/checkpoint?tree_size=%d", at.Size), "", nil); string(bySize.Body) != string(signed.Body) {
		t.Errorf("the checkpoint of tree_size %d is %s, want %s", at.Size, bySize.Body, signed.Body)
	}
}

type tiles struct{ c *e2e.Client }

func (r tiles) Height() int                     { return 8 }
func (r tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (r tiles) ReadTiles(all []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(all))
	for i, t := range all {
		a := r.c.Do("GET", "/"+checkpoint.TilePath(t), "", nil)
		if a.Status != 200 || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
			return nil, fmt.Errorf("GET /%s: %d with header %v, want 200 and Cache-Control immutable", checkpoint.TilePath(t), a.Status, a.Header)
		}
		data[i] = a.Body
	}
	return data, nil
}

// deal-api passes on the refusals of log-server.
func TestRefusedLogReads(t *testing.T) {
	c := newClient(t)
	computed(c)
	for path, code := range map[string]string{
		"/v1/log/tree-head?tree_size=%E2%81%B9":                 "INVALID_REQUEST",
		"/v1/log/tree-head?tree_size=9007199254740991":          "HEAD_NOT_FOUND",
		"/v1/log/proof?entry=" + strings.Repeat("0", 10_000):    "INVALID_REQUEST",
		"/v1/log/proof?leaf_index=0;entry=0":                    "INVALID_REQUEST",
		"/v1/log/proof?entry=" + strings.Repeat("0", 64):        "LEAF_NOT_FOUND",
		"/v1/log/proof?leaf_index=0&tree_size=9007199254740991": "HEAD_NOT_FOUND",
		"/v1/log/consistency?first=0&first=0&second=0":          "INVALID_REQUEST",
		"/v1/log/consistency?first=0&second=9007199254740991":   "HEAD_NOT_FOUND",
		"/v1/log/consistency?first=2&second=1":                  "INVALID_REQUEST",
	} {
		status := 404
		if code == "INVALID_REQUEST" {
			status = 400
		}
		c.Refused(status, code, "GET", path, "", nil)
	}
}

func TestRefusedTilesAndCheckpoints(t *testing.T) {
	c := newClient(t)
	for _, path := range []string{"/tile/0/999", "/tile/64/000"} {
		c.Refused(404, "TILE_NOT_FOUND", "GET", path, "", nil)
	}
	c.Refused(404, "CHECKPOINT_NOT_FOUND", "GET", "/v1/log/checkpoint?tree_size=9007199254740991", "", nil)
	c.Refused(400, "INVALID_REQUEST", "GET", "/v1/log/checkpoint?tree_size=x", "", nil)
}
