package escrow_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// estate is a house with a real log in its database, whose signing key is replaced.
type estate struct {
	*house
	old  *pen
	stop func() // stops the log
	mu   sync.Mutex
	cut  func(step string) error // see severed
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{house: newHouse(t)}
	e.old = e.pen
	check(t, translog.Migrate(t.Context(), e.sql.Config().ConnString()))
	e.serve(t, e.pen, e.keys)
	return e
}

// serve starts the log again with a key and a key set.
func (e *estate) serve(t *testing.T, p *pen, keys *signing.KeySet) {
	t.Helper()
	if e.stop != nil {
		e.stop()
	}
	pool := of(pgxpool.New(t.Context(), e.sql.Config().ConnString())).ok(t)
	l := of(translog.Open(t.Context(), pool, p, keys, slog.New(slog.DiscardHandler), translog.Options{})).ok(t)
	appends, reads := httptest.NewServer(l.AppendHandler("secret")), httptest.NewServer(l.ReadHandler())
	connected := severed{translog.NewClient(appends.URL, reads.URL, "secret"), e}
	e.pen, e.keys, e.signer, e.client = p, keys, connected, connected
	e.stop = sync.OnceFunc(func() {
		appends.Close()
		reads.Close()
		l.Close()
		pool.Close()
	})
	t.Cleanup(e.stop)
}

// retire makes another key current and closes the old one at a tree size; -1 leaves it
// open.
func (e *estate) retire(t *testing.T, treeSize int64) {
	t.Helper()
	next := newPen(t)
	e.serve(t, next, keySetOf(t, next.PublicKey(), e.old.PublicKey(), treeSize))
}

func keySetOf(t *testing.T, current, retired string, treeSize int64) *signing.KeySet {
	t.Helper()
	was := map[string]any{"pubkey": retired}
	if treeSize >= 0 {
		was["tree_size"] = treeSize
	}
	document := of(json.Marshal(map[string]any{"keys": []any{map[string]any{"pubkey": current, "uri": "dev://key", "signs_from": 0}, was}})).ok(t)
	return of(signing.ParseKeySet(document)).ok(t)
}

// severed is a replica's signer and log. A test fails a call with estate.cut, which is
// asked at "sign" after a signature, at "append" before an append and at "logged" after.
type severed struct {
	*translog.Client
	e *estate
}

func (s severed) at(step string) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.cut == nil {
		return nil
	}
	return s.e.cut(step)
}

func (s severed) Sign(ctx context.Context, digest [32]byte) (string, error) {
	signature, err := s.e.pen.Sign(ctx, digest)
	return signature, errors.Join(err, s.at("sign"))
}

func (s severed) Append(ctx context.Context, entry [32]byte, signature string, tag translog.Tag) (int64, error) {
	if err := s.at("append"); err != nil {
		return 0, err
	}
	index, err := s.Client.Append(ctx, entry, signature, tag)
	return index, errors.Join(err, s.at("logged"))
}

func (e *estate) cutAt(cut func(step string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = cut
}

var errCut = fmt.Errorf("%w: the process was killed", translog.ErrUnavailable)

// left plays a deal whose process dies at the nth call of a step.
func (e *estate) left(t *testing.T, step string, nth int) *game {
	t.Helper()
	g := e.split(t, nil).committed(t)
	e.die(step, nth)
	svc := e.replica()
	g.reveal(t, svc, 0).ok(t)
	if last := g.reveal(t, svc, 1).ok(t); last.State != deal.Computed {
		t.Fatalf("the last reveal is answered %+v", last)
	}
	e.cutAt(nil)
	return g
}

// die fails the nth call of a step and every call of any step after it.
func (e *estate) die(step string, nth int) {
	seen := 0
	e.cutAt(func(at string) error {
		if at == step {
			seen++
		}
		if seen >= nth {
			return errCut
		}
		return nil
	})
}

// fill appends n entries that are no certificates.
func (e *estate) fill(t *testing.T, n int) {
	t.Helper()
	for range n {
		entry := certificate.Entry([]byte(rand.Text()))
		signature := of(e.pen.Signer.Sign(t.Context(), entry)).ok(t)
		of(e.client.Append(bounded(t), entry, signature, translog.Tag{})).ok(t)
	}
}

func (e *estate) leaves(t *testing.T) int {
	t.Helper()
	return of(strconv.Atoi(e.text(t, "SELECT size::text FROM translog.log_head"))).ok(t)
}

func (e *estate) signature(t *testing.T, g *game) string {
	t.Helper()
	return e.text(t, "SELECT coalesce(signature, '') FROM certificates WHERE deal_id = $1", g.id)
}

// issued finishes a deal and checks its certificate: signed by that pen, valid, the same on
// every read, and so many leaves in the log.
func (e *estate) issued(t *testing.T, g *game, by *pen, leaves int) certificate.Certificate {
	t.Helper()
	of(e.replica().Attend(bounded(t), g.id)).ok(t)
	c := g.certificate(t, e.replica()).ok(t)
	if report := of(e.replica().Verify(t.Context(), c.CertID)).ok(t); !report.Valid {
		t.Errorf("reported as %+v", report)
	}
	if key := e.signerOf(t, g, c.Signature); key.PublicKey != by.PublicKey() {
		t.Errorf("signed by %s, want %s", key.PublicKey, by.PublicKey())
	}
	same(t, g.certificate(t, e.replica()).ok(t), c)
	if stored := e.signature(t, g); c.Signature != stored {
		t.Errorf("%s is published and %s stored", c.Signature, stored)
	}
	if n := e.leaves(t); n != leaves {
		t.Errorf("the log has %d leaves, want %d", n, leaves)
	}
	return c
}

// signerOf returns the key under which a signature of the deal's certificate verifies.
func (e *estate) signerOf(t *testing.T, g *game, signature string) signing.Key {
	t.Helper()
	return of(e.keys.SignerOf(g.pendingCertificate(t).Payload, signature)).ok(t)
}

// A pending certificate whose signing key was closed meanwhile is signed again. Wherever the
// process dies, one signature is published and there is one leaf.
func TestPendingUnderAClosedKeyIsSignedAgain(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.fill(t, 2)
	steps := []struct {
		step string
		nth  int
		was  string // what is stored after the crash: the signature of the "old" key or of the "new"
		more int    // leaves
	}{
		{"append", 1, "old", 0}, // before the log refuses the old signature
		{"sign", 1, "old", 0},   // the new signature is not stored
		{"append", 2, "new", 0}, // it is stored
		{"logged", 2, "new", 1}, // it is in the log, and its index is not stored
	}
	var games []*game
	for range steps {
		games = append(games, e.left(t, "append", 1))
	}
	e.retire(t, 2)
	for i, s := range steps {
		g, leaves := games[i], e.leaves(t)
		old := e.signature(t, g)
		if key := e.signerOf(t, g, old); !key.Closed() {
			t.Fatalf("pending under %+v, want the closed key", key)
		}
		e.die(s.step, s.nth)
		if _, err := e.replica().Attend(bounded(t), g.id); !errors.Is(err, translog.ErrUnavailable) {
			t.Fatalf("cut at %s %d: %v", s.step, s.nth, err)
		}
		e.cutAt(nil)
		stored := e.signature(t, g)
		if (stored == old) != (s.was == "old") || e.leaves(t) != leaves+s.more {
			t.Errorf("cut at %s %d: the old signature stands: %v, %d new leaves; want %+v", s.step, s.nth, stored == old, e.leaves(t)-leaves, s)
		}
		c := e.issued(t, g, e.pen, leaves+1)
		if s.was == "new" && c.Signature != stored {
			t.Errorf("cut at %s %d: signed a second time, though the first new signature was stored", s.step, s.nth)
		}
	}
}

// Many replicas sign such a certificate again concurrently: one new signature is published.
func TestReplicasSignAgainConcurrently(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	const rounds, replicas = 3, 6
	var games []*game
	for range rounds {
		games = append(games, e.left(t, "append", 1))
	}
	e.retire(t, 0)
	for i, g := range games {
		var group sync.WaitGroup
		for range replicas {
			svc := e.replica()
			group.Go(func() {
				if _, err := svc.Attend(bounded(t), g.id); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		e.issued(t, g, e.pen, i+1)
	}
}

// A replica that is slow to sign again does not replace the signature of a faster one.
func TestFirstPublishedSignatureStays(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	g := e.left(t, "append", 1)
	e.retire(t, 0)
	signed, resume := make(chan struct{}), make(chan struct{})
	first := true
	e.cutAt(func(step string) error {
		if step == "sign" && first {
			first = false
			e.mu.Unlock() // other replicas continue
			close(signed)
			<-resume
			e.mu.Lock()
		}
		return nil
	})
	var slow sync.WaitGroup
	slow.Go(func() {
		if _, err := e.replica().Attend(bounded(t), g.id); err != nil {
			t.Error(err)
		}
	})
	<-signed
	published := e.issued(t, g, e.pen, 1)
	close(resume)
	slow.Wait()
	same(t, e.issued(t, g, e.pen, 1), published)
}

// A pending certificate keeps its signature if its leaf is below the tree size at which its
// key was closed. Otherwise the signature is replaced and the leaf, a digest, stays. The
// head that covers the leaf is then by the closed key too, so that there is no proof until
// the next head.
func TestPendingWithALeafUnderARetiredKey(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		closed int64 // where the leaf has index 1
		kept   bool
	}{
		"open":                {-1, true},
		"closed far above it": {100, true},
		"closed right above":  {2, true},
		"closed at it":        {1, false},
		"closed below":        {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			e.fill(t, 1)
			g := e.left(t, "logged", 1)
			signature := e.signature(t, g)
			e.retire(t, row.closed)
			by, leaves := e.old, 2
			if !row.kept {
				by, leaves = e.pen, 3
				of(e.replica().Attend(bounded(t), g.id)).ok(t)
				g.certificate(t, e.replica()).refused(t, problem.LogInconsistent)
				e.fill(t, 1)
			}
			c := e.issued(t, g, by, leaves)
			if (c.Signature == signature) != row.kept {
				t.Errorf("kept: %v, want %v", c.Signature == signature, row.kept)
			}
			if c.LogProof.LeafIndex != 1 {
				t.Errorf("the proof is of leaf %d, want 1", c.LogProof.LeafIndex)
			}
		})
	}
}

// While a retired key is open, a certificate that is pending under it keeps its signature.
func TestPendingUnderAnOpenRetiredKeyIsKept(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	g := e.left(t, "append", 1)
	signature := e.signature(t, g)
	e.retire(t, -1)
	if c := e.issued(t, g, e.old, 1); c.Signature != signature {
		t.Error("signed again")
	}
}

// A certificate by a retired key at or above its tree size has a signature that verifies,
// and is reported as invalid with the reason and not returned. One below it stays valid.
func TestVerifyBeyondRetirement(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g, id := certified(t, h) // leaf 3
	key := h.pen.PublicKey()
	next := newPen(t)
	h.log.pen = next.Signer
	for _, row := range []struct {
		closed int64
		note   string // empty: valid
	}{
		{-1, ""},
		{4, ""},
		{3, "the key " + key + " retired when the log had 3 leaves and must not sign leaf 3 or later ones, and this certificate is leaf 3: do not rely on it, and tell the operator of this deployment"},
		{0, "the key " + key + " retired when the log had 0 leaves and must not sign leaf 0 or later ones, and this certificate is leaf 3: do not rely on it, and tell the operator of this deployment"},
	} {
		h.keys = keySetOf(t, next.PublicKey(), key, row.closed)
		report := h.verify(t, id).ok(t)
		if report.Valid != (row.note == "") || report.Checks != (escrow.Checks{Signature: true, InputRoot: true, Inclusion: true}) {
			t.Errorf("closed at %d: %+v", row.closed, report)
		}
		if row.note == "" {
			g.certificate(t, h.replica()).ok(t)
			continue
		}
		if report.Note != row.note {
			t.Errorf("closed at %d: the note is %q\nwant %q", row.closed, report.Note, row.note)
		}
		g.certificate(t, h.replica()).refused(t, problem.LogInconsistent)
	}
}
