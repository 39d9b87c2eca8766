package translog

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

// A proof is under the checkpoint that the quorum cosigned as long as that covers
// the leaf, and under the newest one where it does not.
func TestTLogProofPrefersTheQuorum(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	ws := newWitnesses(t, newLogKey(t), "quorum w0", 1)
	l := d.publishing(t, d.pool, ws.policy)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	client := NewClient("", server.URL, "")

	d.mustAppend(t, l, 0)
	eventually(t, "the witness cosigns", func() bool { return l.checkpoints.certified.Load() == 1 })
	ws.fail(0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	d.mustAppend(t, l, 1)
	waitForCheckpoint(t, l, 2)

	for leaf, want := range map[int64]struct {
		size int64
		met  bool
	}{0: {1, true}, 1: {2, false}} {
		entry := entryOf(int(leaf))
		text, err := client.TLogProof(t.Context(), entry, leaf)
		check(t, err)
		c, index, _, err := ws.policy.Policy.VerifyProof(text, entry[:])
		if index != leaf || c.Size != want.size || (err == nil) != want.met {
			t.Errorf("leaf %d: proven at %d under size %d, %v", leaf, index, c.Size, err)
		}
		proof, err := checkpoint.ParseProof(text)
		check(t, err)
		check(t, proof.VerifyInclusion(entry[:], c))
	}

	// What no checkpoint covers has no proof, and no other leaf's is passed off as it.
	another := entryOf(7)
	if text, err := client.TLogProof(t.Context(), another, 5); err != nil || text != nil {
		t.Errorf("a leaf that is not there: %q, %v", text, err)
	}
	if text, err := client.TLogProof(t.Context(), another, 0); err != nil || text != nil {
		t.Errorf("another entry at the leaf: %q, %v", text, err)
	}
	for query, code := range map[string]string{"": "INVALID_REQUEST", "?leaf_index=x": "INVALID_REQUEST", "?leaf_index=9": "LEAF_NOT_FOUND"} {
		if response, body := send(t, "GET", server.URL+"/v1/log/tlog-proof"+query); response.StatusCode < 400 || !strings.Contains(body, code+":") {
			t.Errorf("%q: %d %s, want %s", query, response.StatusCode, body, code)
		}
	}
}

// A log without checkpoints has no such proofs.
func TestNoTLogProofWithoutCheckpoints(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	d.mustAppend(t, l, 0)
	server := httptest.NewServer(l.ReadHandler())
	defer server.Close()
	if text, err := NewClient("", server.URL, "").TLogProof(t.Context(), entryOf(0), 0); err != nil || text != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, body := send(t, "GET", server.URL+"/v1/log/tlog-proof?leaf_index=0"); !strings.Contains(body, "CHECKPOINT_NOT_FOUND:") {
		t.Errorf("%s", body)
	}
}
