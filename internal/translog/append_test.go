package translog

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// 600 callers append 300 entries, each entry twice, to two replicas that share a database
// and a fork guard. The entries fill more than one tile (256 leaves). A replica that loses a
// race for the fork guard's record retries and counts no contradiction.
func TestConcurrentAppends(t *testing.T) {
	t.Parallel()
	const distinct, callers = 300, 600
	d := newDeployment(t)
	g := &memoryGuard{}
	one, _ := d.guarded(t, g, nil)
	two, _ := d.guarded(t, g, nil)
	replicas := []*Log{one, two}
	signatures := make([]string, distinct)
	for n := range signatures {
		signatures[n] = d.sign(t, entryOf(n))
	}
	ctx := within(t, time.Minute)

	answers := make([]Appended, callers)
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			n := c % distinct
			l := replicas[rand.IntN(2)]
			appended, err := l.Append(ctx, entryOf(n), signatures[n], Tag(entryOf(n)))
			if err != nil {
				t.Errorf("append entry %d: %v, want no error", n, err)
				return
			}
			answers[c] = appended
			entry := entryOf(n)
			for _, l := range replicas {
				proof, err := l.Inclusion(ctx, LeafQuery{LeafIndex: &appended.LeafIndex, Entry: &entry})
				if err != nil {
					t.Errorf("prove entry %d at leaf %d: %v, want a proof", n, appended.LeafIndex, err)
				} else if err := verify(proof, entry); err != nil || proof.TreeSize < appended.TreeSize {
					t.Errorf("entry %d: the proof is under size %d and the append was answered under %d (%v), want a valid proof under the same size or a larger one", n, proof.TreeSize, appended.TreeSize, err)
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}

	holder := make(map[int64]int)
	for c, a := range answers {
		if a.LeafIndex >= distinct || answers[c%distinct].LeafIndex != a.LeafIndex {
			t.Errorf("entry %d has the indexes %d and %d, want one index below %d", c%distinct, answers[c%distinct].LeafIndex, a.LeafIndex, distinct)
		}
		holder[a.LeafIndex] = c % distinct
	}
	if len(holder) != distinct {
		t.Errorf("%d indexes for %d entries, want one index for each", len(holder), distinct)
	}
	if size := committedSize(t, d); size != distinct || g.size() != distinct {
		t.Errorf("size %d, guard at %d, want %d", size, g.size(), distinct)
	}
	requireNoContradiction(t, replicas...)
}

func committedSize(t *testing.T, d *deployment) (size int64) {
	t.Helper()
	check(t, d.pool.QueryRow(t.Context(), "SELECT size FROM translog.log_head").Scan(&size))
	return size
}

func TestAppendsShareBatchesAndHeads(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	gate := newGate(d)
	l := d.open(t, d.pool, gate)
	<-gate.entered // the log now waits for the signature of the head of size 0
	var group sync.WaitGroup
	for n := range 50 {
		signature := d.sign(t, entryOf(n))
		group.Go(func() {
			if _, err := l.Append(within(t, time.Minute), entryOf(n), signature, Tag(entryOf(n))); err != nil {
				t.Errorf("append entry %d: %v, want no error", n, err)
			}
		})
	}
	eventually(t, "all are sequenced", func() bool { return committedSize(t, d) == 50 })
	close(gate.pass)
	group.Wait()
	if n := gate.count.Load(); n > 3 { // heads of the sizes 0 and 50, and perhaps of one size between them
		t.Errorf("%d signatures for 50 appends that waited together, want at most 3", n)
	}
}

func newGate(d *deployment) *gatedSigner {
	return &gatedSigner{Signer: d.signer, entered: make(chan struct{}, 1000), pass: make(chan struct{})}
}

type gatedSigner struct {
	Signer
	entered chan struct{}
	pass    chan struct{}
	count   atomic.Int64
}

func (g *gatedSigner) Sign(ctx context.Context, digest [32]byte) (string, error) {
	g.count.Add(1)
	g.entered <- struct{}{}
	select {
	case <-g.pass:
		return g.Signer.Sign(ctx, digest)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func TestAppendRefusesBadSignaturesAndOwnHeads(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	d.mustAppend(t, l, 0, 1, 2)
	stranger, _ := newKey(t)
	foreign := of(stranger.Sign(t.Context(), entryOf(9))).ok(t)
	cases := map[string]struct {
		entry     [32]byte
		signature string
	}{
		"a signature of another key":    {entryOf(9), foreign},
		"a signature of another digest": {entryOf(9), d.sign(t, entryOf(8))},
		"no signature":                  {entryOf(9), ""},
		"a malformed signature":         {entryOf(9), "es256:zz"},
	}
	for _, size := range []int64{0, 3} {
		head := waitForHead(t, l, size)
		cases["the head of size "+string(rune('0'+size))] = struct {
			entry     [32]byte
			signature string
		}{head.Digest(), head.Signature}
	}
	for name, c := range cases {
		if _, err := l.Append(within(t, time.Minute), c.entry, c.signature, Tag(c.entry)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
	if size := committedSize(t, d); size != 3 {
		t.Errorf("size %d after refusals, want 3", size)
	}
}

// The log refuses an entry that is the digest of its committed head, even if that head is not
// stored yet, because the head may be signed already.
func TestUnstoredHeadIsRefused(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	check(t, third((&store{d.pool}).commit(t.Context(), candidatesOf(0, 5))))
	gate := newGate(d)
	l := d.open(t, d.pool, gate)
	head := root{5, refRoot(leavesOf(0, 5))}.head("")
	_, err := l.Append(within(t, time.Minute), head.Digest(), d.sign(t, head.Digest()), Tag(head.Digest()))
	if !errors.Is(err, ErrRefused) {
		t.Errorf("append the digest of the unstored head: %v, want ErrRefused", err)
	}
}

func TestAppendEndsWithTheLog(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, newGate(d))
	result := make(chan error)
	go func() {
		result <- second(l.Append(t.Context(), entryOf(0), of(d.signer.Sign(t.Context(), entryOf(0))).value, Tag(entryOf(0))))
	}()
	eventually(t, "sequenced", func() bool { return committedSize(t, d) > 0 })
	l.Close()
	if err := <-result; !errors.Is(err, ErrUnavailable) {
		t.Errorf("an append that waits at Close: %v, want ErrUnavailable", err)
	}
	d.failAppend(t, l, 1, ErrUnavailable)
}
