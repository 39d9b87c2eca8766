package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
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

// The log's reads: heads are signed, old ones stay what they were, a leaf's
// proof is the same by index and by entry, and a newer head extends an older.
func TestLogReads(t *testing.T) {
	c := surfaceClient(t)
	keys := e2e.Trusted(t, e2e.Shared(t))
	head := func(query string) (h translog.TreeHead) {
		t.Helper()
		c.Want(200, "GET", "/v1/log/tree-head"+query, "", nil).Into(t, &h)
		if err := keys.Verify(h.Message(), h.Signature); err != nil {
			t.Errorf("head %+v: %v", h, err)
		}
		return h
	}
	c.Refused(400, "INVALID_REQUEST", "GET", "/v1/log/proof?entry="+strings.Repeat("0", 20_000), "", nil)
	empty := sha256.Sum256(nil)
	if first := head("?tree_size=0"); first.TreeSize != 0 || first.RootHash != hex.EncodeToString(empty[:]) {
		t.Errorf("the first head: %+v", first)
	}
	ended := func() []byte {
		return e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal.Certified(e2e.Patience)
	}
	ended()
	before := head("")
	text := ended()
	var cert struct {
		Proof struct {
			TreeSize  int64    `json:"tree_size"`
			LeafIndex int64    `json:"leaf_index"`
			Path      []string `json:"inclusion_path"`
		} `json:"log_proof"`
	}
	e2e.Answer{Body: text}.Into(t, &cert)
	after := head("")
	if after.TreeSize <= before.TreeSize || after.TreeSize < cert.Proof.TreeSize {
		t.Errorf("sizes: %d before, %d after, %d in the proof", before.TreeSize, after.TreeSize, cert.Proof.TreeSize)
	}
	if again := head(fmt.Sprintf("?tree_size=%d", before.TreeSize)); again != before {
		t.Errorf("the head of size %d was %+v and is %+v", before.TreeSize, before, again)
	}

	// SPEC 2.5: what is signed is the certificate without signature and log_proof.
	payload, err := canon.ParseObject(text)
	if err != nil {
		t.Fatal(err)
	}
	delete(payload, "log_proof")
	delete(payload, "signature")
	entry := sha256.Sum256(canon.Encode(payload))
	byEntry := fmt.Sprintf("entry=%x", entry)
	byIndex := fmt.Sprintf("leaf_index=%d", cert.Proof.LeafIndex)
	for _, query := range []string{byEntry, byIndex, byEntry + "&" + byIndex, fmt.Sprintf("%s&tree_size=%d", byEntry, cert.Proof.TreeSize)} {
		var p translog.Inclusion
		c.Want(200, "GET", "/v1/log/proof?"+query, "", nil).Into(t, &p)
		if p.Entry != hex.EncodeToString(entry[:]) || p.LeafIndex != cert.Proof.LeafIndex || keys.Verify(p.Message(), p.Signature) != nil {
			t.Errorf("%s: %+v", query, p)
		}
		leaf := rfc6962.DefaultHasher.HashLeaf(entry[:])
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(p.LeafIndex), uint64(p.TreeSize), leaf, raw(t, p.Path...), raw(t, p.RootHash)[0]); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{fmt.Sprintf("first=%d", before.TreeSize), fmt.Sprintf("first=%d&second=%d", before.TreeSize, after.TreeSize), "first=0"} {
		var p translog.Consistency
		c.Want(200, "GET", "/v1/log/consistency?"+query, "", nil).Into(t, &p)
		if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(p.First.TreeSize), uint64(p.Second.TreeSize), raw(t, p.Path...), raw(t, p.First.RootHash)[0], raw(t, p.Second.RootHash)[0]); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if keys.Verify(p.First.Message(), p.First.Signature) != nil || keys.Verify(p.Second.Message(), p.Second.Signature) != nil {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

// What the log refuses to read, and why.
func TestRefusedLogReads(t *testing.T) {
	c := surfaceClient(t)
	e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 2, 2, e2e.AnnsValues, e2e.BobsValues).Deal.Certified(e2e.Patience)
	zeros := fmt.Sprintf("%064d", 0)
	for query, want := range map[string]struct {
		status int
		code   string
	}{
		"tree-head?tree_size=":                              {400, "INVALID_REQUEST"},
		"tree-head?tree_size=-1":                            {400, "INVALID_REQUEST"},
		"tree-head?tree_size=01":                            {400, "INVALID_REQUEST"},
		"tree-head?tree_size=1.0":                           {400, "INVALID_REQUEST"},
		"tree-head?tree_size=x":                             {400, "INVALID_REQUEST"},
		"tree-head?tree_size=9007199254740992":              {400, "INVALID_REQUEST"},
		"tree-head?tree_size=99999999999999999999":          {400, "INVALID_REQUEST"},
		"tree-head?tree_size=1&tree_size=1":                 {400, "INVALID_REQUEST"},
		"tree-head?tree_size=%zz":                           {400, "INVALID_REQUEST"},
		"tree-head?tree_size=9007199254740991":              {404, "HEAD_NOT_FOUND"},
		"proof":                                             {400, "INVALID_REQUEST"},
		"proof?entry=00":                                    {400, "INVALID_REQUEST"},
		"proof?entry=" + zeros[1:] + "A":                    {400, "INVALID_REQUEST"},
		"proof?entry=" + zeros:                              {404, "LEAF_NOT_FOUND"},
		"proof?leaf_index=9007199254740991":                 {404, "LEAF_NOT_FOUND"},
		"proof?leaf_index=0&entry=" + zeros:                 {404, "LEAF_NOT_FOUND"},
		"proof?leaf_index=0&tree_size=0":                    {404, "LEAF_NOT_FOUND"},
		"proof?leaf_index=0&tree_size=9007199254740991":     {404, "HEAD_NOT_FOUND"},
		"proof?leaf_index=-0":                               {400, "INVALID_REQUEST"},
		"consistency":                                       {400, "INVALID_REQUEST"},
		"consistency?second=1":                              {400, "INVALID_REQUEST"},
		"consistency?first=2&second=1":                      {400, "INVALID_REQUEST"},
		"consistency?first=0x1":                             {400, "INVALID_REQUEST"},
		"consistency?first=9007199254740991":                {404, "HEAD_NOT_FOUND"},
		"consistency?first=0&second=9007199254740991":       {404, "HEAD_NOT_FOUND"},
		"consistency?first=0&first=0&second=0":              {400, "INVALID_REQUEST"},
		"consistency?first=0&second=%F0%9F%A6%86":           {400, "INVALID_REQUEST"},
		"tree-head?tree_size=%E2%81%B9":                     {400, "INVALID_REQUEST"},
		"proof?leaf_index=" + "1" + zeros:                   {400, "INVALID_REQUEST"},
		"proof?leaf_index=0&tree_size=" + "%31%00":          {400, "INVALID_REQUEST"},
		"proof?leaf_index=0;entry=" + zeros:                 {400, "INVALID_REQUEST"},
		"consistency?first=%201":                            {400, "INVALID_REQUEST"},
		"consistency?first=1e1":                             {400, "INVALID_REQUEST"},
		"tree-head?tree_size=0&tree_size=" + zeros:          {400, "INVALID_REQUEST"},
		"proof?entry=" + zeros + "&entry=" + zeros:          {400, "INVALID_REQUEST"},
		"proof?leaf_index=0&tree_size=18446744073709551615": {400, "INVALID_REQUEST"},
	} {
		c.Refused(want.status, want.code, "GET", "/v1/log/"+query, "", nil)
	}
}
