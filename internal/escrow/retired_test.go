package escrow_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
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

// estate is a house with a real log in its database, whose key is replaced.
type estate struct {
	*house
	old  *pen
	real *translog.Client
	stop func() // of the log
	mu   sync.Mutex
	cut  func(step string) error // what happens to a call on its way; see wary
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	h := newHouse(t)
	e := &estate{house: h, old: h.pen}
	if err := translog.Migrate(t.Context(), h.sql.Config().ConnString()); err != nil {
		t.Fatal(err)
	}
	e.serve(t, h.pen, h.keys)
	return e
}

// serve starts the log again with a key and a key set.
func (e *estate) serve(t *testing.T, p *pen, keys *signing.KeySet) {
	t.Helper()
	if e.stop != nil {
		e.stop()
	}
	pool, err := pgxpool.New(t.Context(), e.sql.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	l, err := translog.Open(t.Context(), pool, p, keys, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	appends, reads := httptest.NewServer(l.AppendHandler("secret")), httptest.NewServer(l.ReadHandler())
	e.real, e.pen, e.keys = translog.NewClient(appends.URL, reads.URL, "secret"), p, keys
	e.stop = sync.OnceFunc(func() {
		appends.Close()
		reads.Close()
		l.Close()
		pool.Close()
	})
	t.Cleanup(e.stop)
}

// retire makes another key current and closes the old one at a tree size; -1
// leaves it open.
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
	document, err := json.Marshal(map[string]any{"keys": []any{map[string]any{"pubkey": current, "uri": "dev://key", "signs_from": 0}, was}})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := signing.ParseKeySet(document)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// wary is a replica's signer and log, that a test cuts: "sign" after a signature
// is made, "append" before one is brought to the log, "logged" after.
type wary struct{ e *estate }

func (w wary) at(step string) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.e.cut == nil {
		return nil
	}
	return w.e.cut(step)
}

func (w wary) Sign(ctx context.Context, digest [32]byte) (string, error) {
	signature, err := w.e.pen.Sign(ctx, digest)
	return signature, errors.Join(err, w.at("sign"))
}

func (w wary) Append(ctx context.Context, entry [32]byte, signature string, tag translog.Tag) (int64, error) {
	if err := w.at("append"); err != nil {
		return 0, err
	}
	index, err := w.e.real.Append(ctx, entry, signature, tag)
	return index, errors.Join(err, w.at("logged"))
}

func (w wary) Inclusion(ctx context.Context, entry [32]byte, index int64) (translog.Inclusion, error) {
	return w.e.real.Inclusion(ctx, entry, index)
}

func (w wary) TreeHeadAt(ctx context.Context, size int64) (translog.TreeHead, error) {
	return w.e.real.TreeHeadAt(ctx, size)
}

func (w wary) Certified() int64 { return 0 }

func (w wary) LearnCertified(context.Context) {}

func (w wary) TLogProof(ctx context.Context, entry [32]byte, index int64) ([]byte, error) {
	return w.e.real.TLogProof(ctx, entry, index)
}

func (e *estate) replica() *escrow.Service {
	return escrow.New(e.store, e.secrets, wary{e}, e.keys, wary{e}, e.well, escrow.Options{EntropyWindow: window}, slog.New(slog.DiscardHandler))
}

func (e *estate) cutAt(cut func(step string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = cut
}

var errCut = fmt.Errorf("%w: the process was killed", translog.ErrUnavailable)

// left plays a deal whose process dies at the nth time that it comes to a step.
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

// die fails the nth and every later call of a step: nothing that follows it is
// done.
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

// fill logs n entries that are nobody's certificate.
func (e *estate) fill(t *testing.T, n int) {
	t.Helper()
	for range n {
		entry := certificate.Entry([]byte(rand.Text()))
		signature, err := e.pen.Signer.Sign(t.Context(), entry)
		if err == nil {
			_, err = e.real.Append(bounded(t), entry, signature, translog.Tag{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (e *estate) leaves(t *testing.T) (n int) {
	t.Helper()
	if err := e.sql.QueryRow(t.Context(), "SELECT size FROM translog.log_head").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (e *estate) signature(t *testing.T, g *game) string {
	t.Helper()
	return e.text(t, "SELECT coalesce(signature, '') FROM certificates WHERE deal_id = $1", g.id)
}

// issued finishes a deal and checks its certificate: so many leaves in the log, a
// signature by that pen, valid, and the same on every read.
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

// signerOf is the key under which a signature of the deal's certificate verifies.
func (e *estate) signerOf(t *testing.T, g *game, signature string) signing.Key {
	t.Helper()
	return of(e.keys.SignerOf(g.pendingCertificate(t).Payload, signature)).ok(t)
}

// A certificate that waits under a signature of a key which was closed meanwhile
// is signed again, wherever the process that does it dies: one signature is ever
// published, and there is one leaf.
func TestPendingUnderAClosedKeyIsSignedAnew(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.fill(t, 2)
	steps := []struct {
		step string
		nth  int
		was  string // what is stored after the crash: the signature of the "old" key or of the "new"
		more int    // leaves
	}{
		{"append", 1, "old", 0}, // before the log refused the old signature
		{"sign", 1, "old", 0},   // a new signature was made and not stored
		{"append", 2, "new", 0}, // it was stored
		{"logged", 2, "new", 1}, // and logged; its index was not stored
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
		if s.step == "logged" { // the refusal of the old signature passes
			e.die(s.step, 2)
		}
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

// Many replicas are at one such certificate: one new signature stands.
func TestPendingUnderAClosedKeyWithManyReplicas(t *testing.T) {
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

// A replica that was slow to sign again does not undo what a faster one published.
func TestTheFirstPublishedSignatureStands(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	g := e.left(t, "append", 1)
	e.retire(t, 0)
	signed, resume := make(chan struct{}), make(chan struct{})
	first := true
	e.cutAt(func(step string) error {
		if step == "sign" && first {
			first = false
			e.mu.Unlock() // others go on
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

// A certificate whose leaf came in time keeps the signature that it waits under,
// closed key or not; where the leaf lies beyond the key's end it is the signature
// that is replaced, and the leaf, a digest, is the same. The head that covers the
// leaf is then by the closed key too: nothing is proved until the next head.
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

// While the key is retired and open, what is pending under it is logged as it is.
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

// What a retired key signed beyond its tree size verifies as a signature and is
// reported as invalid, with a note that says why, and not handed out; what lies
// below it stays valid.
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
