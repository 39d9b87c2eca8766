package translog

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

// After its first append, a process that appends alone needs two round trips to the database
// for each append: one for the leaf and one for the head. A call for a proof or for the newest
// head needs one round trip.
func TestRoundTripsOfASingleCaller(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	var sent atomic.Int64
	l := d.open(t, wiredPool(t, d.url, func(_ net.Conn, message []byte) bool {
		if !bytes.Contains(message, []byte("-- ping")) { // the pool pings a connection that was idle for a second
			sent.Add(1)
		}
		return false
	}), nil)
	d.mustAppend(t, l, 0, 1, 2)
	check(t, prove(t, l, 2))
	takes := func(what string, want int64, call func() error) {
		t.Helper()
		before := sent.Load()
		check(t, call())
		if got := sent.Load() - before; got != want {
			t.Errorf("%s: %d round trips, want %d", what, got, want)
		}
	}
	for n := 3; n < 300; n++ { // past the end of the first tile, which has 256 leaves
		signature := d.sign(t, entryOf(n))
		takes(fmt.Sprint("append ", n), 2, func() error { return second(l.Append(t.Context(), entryOf(n), signature, Tag(entryOf(n)))) })
		takes(fmt.Sprint("proof ", n), 1, func() error { return prove(t, l, int64(n)) })
	}
	takes("tree head", 1, func() error { return second(l.TreeHead(t.Context())) })
}

func TestMemoryOfAnotherHistoryIsReplaced(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	fill(t, l, 0, 300)
	check(t, prove(t, l, 299))
	asOwner(t, d, "DELETE FROM translog.leaves WHERE leaf_index >= 200", "DELETE FROM translog.nodes", "DELETE FROM translog.tree_heads WHERE tree_size > 0")
	setCommitted(t, d, leavesOf(0, 200))
	check(t, third(l.store.commit(t.Context(), candidatesOf(1200, 1300))))
	history := append(leavesOf(0, 200), leavesOf(1200, 1300)...)
	head := root{300, refRoot(history)}.head("")
	head.Signature = d.sign(t, head.Digest())
	check(t, second(l.store.insertHead(t.Context(), head, nil, none)))
	// Leaf 299 comes first: memory has all tiles of its proof, but computed from the old leaves.
	checkHeadAndPaths(t, l, history, []int{299, 0, 199, 200, 255, 256})
	requireNoContradiction(t, l)
}

func TestHeadNeedsItsLastLeaf(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	fill(t, l, 0, 3)
	head := root{2, refRoot(leavesOf(0, 2))}.head("")
	head.Signature = d.sign(t, head.Digest())
	other, last := entryOf(9), entryOf(1)
	if _, err := l.store.insertHead(t.Context(), head, other[:], none); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("another last leaf: %v, want pgx.ErrNoRows", err)
	}
	if stored, err := l.store.insertHead(t.Context(), head, last[:], none); err != nil || stored != head {
		t.Errorf("insert the head of size 2: %+v, %v; want it stored", stored, err)
	}
	second := head
	second.Signature = d.sign(t, head.Digest())
	if stored, err := l.store.insertHead(t.Context(), second, last[:], none); err != nil || stored != head {
		t.Errorf("the second head of a size: %+v, %v; want the first", stored, err)
	}
}

// Two callers extend the right edge at the same time, to different sizes. Only one of the two
// extensions fits the tree in memory. The other caller must not read nodes that are not there yet.
func TestConcurrentCallersExtendTheTree(t *testing.T) {
	t.Parallel()
	_, l := newLog(t)
	const size = 200
	fill(t, l, 0, size)
	lastLeaf := func(tr *tree, n int64) error {
		got, err := tr.nodes(t.Context(), root{n, refRoot(leavesOf(0, int(n)))}, []compact.NodeID{{Index: uint64(n - 1)}})
		if err != nil {
			return err
		}
		if want := rfc6962.DefaultHasher.HashLeaf(leavesOf(int(n-1), int(n))[0]); !bytes.Equal(got[0], want) {
			return fmt.Errorf("the leaf hash is %x, want %x", got[0], want)
		}
		return nil
	}
	for range 30 {
		tr := newTree(&l.store, cacheBytes)
		check(t, lastLeaf(tr, 5))
		var group sync.WaitGroup
		for _, n := range []int64{10, size} {
			group.Go(func() {
				if err := lastLeaf(tr, n); err != nil {
					t.Errorf("leaf %d of a tree of %d leaves: %v", n-1, n, err)
				}
			})
		}
		group.Wait()
	}
}

// A failed proof may replace the tree in memory by a smaller one, between follow and load.
func TestSmallerTreeInMemoryIsRefused(t *testing.T) {
	t.Parallel()
	_, l := newLog(t)
	fill(t, l, 0, 10)
	small := newTree(&l.store, cacheBytes)
	check(t, small.follow(t.Context(), root{5, refRoot(leavesOf(0, 5))}))
	if _, err := small.load(t.Context(), root{10, refRoot(leavesOf(0, 10))}, tileID{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a tile of 10 leaves from a tree of 5 leaves: %v, want ErrUnavailable", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	_, l := newLog(t)
	fill(t, l, 0, 10_000)
	l.tree = newTree(&l.store, 3*tileBytes)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for index := int64(worker); index < 10_000; index += 399 {
				if err := prove(t, l, index); err != nil {
					t.Errorf("prove leaf %d: %v, want a proof", index, err)
				}
			}
		})
	}
	group.Wait()
	if n := l.tree.complete.Len(); n != 3 {
		t.Errorf("the cache has %d tiles, want 3", n)
	}
}
