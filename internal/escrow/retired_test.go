package escrow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// retire makes a new key current, retires the old key, and returns the old key's signer. From then
// on, the old key may sign only leaves below treeSize (-1: any leaf), and fakeLog refuses entries
// without a valid signature.
func (h *fixture) retire(t *testing.T, treeSize int64) (old *fakeSigner) {
	t.Helper()
	old, h.signer = h.signer, newPen(t)
	h.keys = keySetOf(t, h.signer.PublicKey(), old.PublicKey(), treeSize)
	h.log.signer, h.log.keys = h.signer.Signer, h.keys
	return old
}

func keySetOf(t *testing.T, current, retired string, treeSize int64) *signing.KeySet {
	t.Helper()
	was := map[string]any{"pubkey": retired}
	if treeSize >= 0 {
		was["tree_size"] = treeSize
	}
	document := of(json.Marshal(map[string]any{"keys": []any{map[string]any{"pubkey": current, "uri": "dev://key", "signs_from": 0}, was}})).ok(t)
	return signing.NewKeySet(of(signing.ParseKeySet(t.Context(), document)).ok(t))
}

var errCut = fmt.Errorf("%w: the process was killed", translog.ErrUnavailable)

// die makes the nth call of a step fail, and every later call of any step, as if the process
// had died. The steps are "sign", "append" (the entry is not in the log yet) and "logged"
// (the entry is in the log).
func (h *fixture) die(step string, nth int) {
	seen := 0
	at := func(now string) error {
		if now == step {
			seen++
		}
		if seen >= nth {
			return errCut
		}
		return nil
	}
	h.signer.fail(func(context.Context) error { return at("sign") })
	h.log.fail(func(add func()) error {
		if err := at("append"); err != nil {
			return err
		}
		add()
		return at("logged")
	}, nil)
}

func (h *fixture) live() {
	h.signer.fail(nil)
	h.log.fail(nil, nil)
}

func (h *fixture) left(t *testing.T, step string) *game {
	t.Helper()
	h.die(step, 1)
	defer h.live()
	return lastReveal(t, h)
}

func (h *fixture) fill(t *testing.T, n byte) {
	t.Helper()
	for i := range n {
		of(h.log.Append(t.Context(), [32]byte{i + 1}, "es256:00", translog.Tag{})).ok(t)
	}
}

// issuedBy lets the worker issue a deal's certificate. It checks the signing key and the
// number of leaves, and that every read returns the same certificate.
func (g *game) issuedBy(t *testing.T, by *fakeSigner, leaves int) certificate.Certificate {
	t.Helper()
	c := g.attended(t).published(t)
	stored := g.pendingCertificate(t)
	if key := of(g.keys.SignerOf(stored.Payload, c.Signature)).ok(t); key.Label != by.PublicKey() || c.Signature != *stored.Signature {
		t.Errorf("signature %s by %s is published and %s is stored, want one signature by %s", c.Signature, key.Label, *stored.Signature, by.PublicKey())
	}
	same(t, g.published(t), c)
	if n := g.log.size(); n != leaves {
		t.Errorf("the log has %d leaves, want %d", n, leaves)
	}
	return c
}

// If a retired key is closed at a tree size (signing.Key.TreeSize) while a certificate that it
// signed is pending, the current key signs the certificate again. Wherever the process dies, one
// signature is published and there is one leaf.
func TestPendingUnderAClosedKeyIsSignedAgain(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.fill(t, 2)
	steps := []struct {
		step string
		nth  int
		was  string // the key of the signature that is stored after the crash: "old" or "new"
		more int    // leaves that the process added before the crash
	}{
		{"append", 1, "old", 0}, // dies before the first append, which has the old signature
		{"sign", 1, "old", 0},   // dies before the current key signs
		{"append", 2, "new", 0}, // dies before the second append, after it has stored the new signature
		{"logged", 2, "new", 1}, // dies after the entry is in the log and before its index is stored
	}
	var games []*game
	for range steps {
		games = append(games, h.left(t, "append"))
	}
	h.retire(t, 2)
	for i, s := range steps {
		g, leaves := games[i], h.log.size()
		before := g.pendingCertificate(t)
		if key := of(h.keys.SignerOf(before.Payload, *before.Signature)).ok(t); !key.Closed() {
			t.Fatalf("the pending certificate is signed by %+v, want the closed key", key)
		}
		h.die(s.step, s.nth)
		if _, err := h.replica().ProcessDeal(t.Context(), g.id); !errors.Is(err, translog.ErrUnavailable) {
			t.Fatalf("died at %s %d: got error %v, want %v", s.step, s.nth, err, translog.ErrUnavailable)
		}
		h.live()
		stored := *g.pendingCertificate(t).Signature
		if (stored == *before.Signature) != (s.was == "old") || h.log.size() != leaves+s.more {
			t.Errorf("died at %s %d: %d new leaves, and the signature %s is stored; want %d and a signature of the %s key", s.step, s.nth, h.log.size()-leaves, stored, s.more, s.was)
		}
		c := g.issuedBy(t, h.signer, leaves+1)
		if s.was == "new" && c.Signature != stored {
			t.Errorf("died at %s %d: the certificate has signature %s, want %s, which was stored before", s.step, s.nth, c.Signature, stored)
		}
	}
}

func TestFirstPublishedSignatureStays(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := h.left(t, "append")
	h.retire(t, 0)
	began, resume := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	h.signer.fail(func(context.Context) error {
		if first.CompareAndSwap(false, true) {
			close(began)
			<-resume
		}
		return nil
	})
	var slow sync.WaitGroup
	slow.Go(func() {
		if _, err := h.replica().ProcessDeal(bounded(t), g.id); err != nil {
			t.Errorf("ProcessDeal by the slow replica: %v, want no error", err)
		}
	})
	<-began
	published := g.issuedBy(t, h.signer, 1)
	close(resume)
	slow.Wait()
	same(t, g.issuedBy(t, h.signer, 1), published)
}

// A retired key stays valid for all leaves until it is closed at a tree size. From then on it
// is valid for leaves below that size. A pending certificate with a leaf at or above that size
// gets a new signature and keeps the leaf.
func TestPendingUnderARetiredKey(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		step   string // at which the first process dies: "append" or "logged" (see die)
		closed int64  // tree size at which the key was closed (-1: the key is open); the leaf has index 1
		kept   bool
	}{
		"open, not in the log": {"append", -1, true},
		"open":                 {"logged", -1, true},
		"closed far above it":  {"logged", 100, true},
		"closed right above":   {"logged", 2, true},
		"closed at it":         {"logged", 1, false},
		"closed below":         {"logged", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			h.fill(t, 1)
			g := h.left(t, row.step)
			signature := *g.pendingCertificate(t).Signature
			by := h.retire(t, row.closed)
			if !row.kept {
				by = h.signer
			}
			if c := g.issuedBy(t, by, 2); (c.Signature == signature) != row.kept || c.LogProof.LeafIndex != 1 {
				t.Errorf("leaf %d, signature kept: %v; want leaf 1, signature kept: %v", c.LogProof.LeafIndex, c.Signature == signature, row.kept)
			}
		})
	}
}

// A key that was closed at tree size n is valid only for leaves below n. Verify reports a
// certificate at leaf n or above as invalid. Certificate refuses to return such a certificate.
func TestVerifyBeyondRetirement(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g, id := certified(t, h)
	key := h.signer.PublicKey()
	next := newPen(t)
	h.log.signer = next.Signer
	for _, row := range []struct {
		closed int64
		note   string
	}{
		{-1, ""},
		{4, ""},
		{3, "the key " + key + " retired when the log had 3 leaves, so it must not sign leaf 3 or a later leaf. This certificate is leaf 3: do not rely on this certificate, and tell the operator of this deployment"},
		{0, "the key " + key + " retired when the log had 0 leaves, so it must not sign leaf 0 or a later leaf. This certificate is leaf 3: do not rely on this certificate, and tell the operator of this deployment"},
	} {
		h.keys = keySetOf(t, next.PublicKey(), key, row.closed)
		report := h.verify(t, id).ok(t)
		if report.Valid != (row.note == "") || report.Checks != (escrow.Checks{Signature: true, InputRoot: true, Inclusion: true}) {
			t.Errorf("closed at %d: got the report %+v, want valid: %v with all checks true", row.closed, report, row.note == "")
		}
		if row.note == "" {
			g.certificate(t, h.replica()).ok(t)
			continue
		}
		if report.Note != row.note {
			t.Errorf("closed at %d: got the note %q\nwant %q", row.closed, report.Note, row.note)
		}
		g.certificate(t, h.replica()).refused(t, problem.LogInconsistent)
	}
}
