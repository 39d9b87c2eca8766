package translog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

type ring struct {
	*deployment
	by map[string]*signing.Signer
}

// newRing returns a deployment with the keys "current", "next" and "open", and a key "closed
// at N" for each given tree size N. "closed at N" is a retired key that may sign only leaves below
// index N. "open" is a retired key that may sign any leaf.
func newRing(t *testing.T, closedAt ...int64) *ring {
	t.Helper()
	r := &ring{newDeployment(t), map[string]*signing.Signer{}}
	var keys []string
	add := func(name, more string) {
		r.by[name], _ = newKey(t)
		keys = append(keys, fmt.Sprintf(`{"pubkey":%q%s}`, r.by[name].PublicKey(), more))
	}
	now := time.Now().Unix()
	add("current", fmt.Sprintf(`,"uri":"dev://key","signs_from":%d`, now-1000))
	// The log accepts signatures by this key before its signs_from.
	add("next", fmt.Sprintf(`,"uri":"dev://next","signs_from":%d`, now+100))
	add("open", "")
	for _, size := range closedAt {
		add(fmt.Sprint("closed at ", size), fmt.Sprintf(`,"tree_size":%d`, size))
	}
	r.keys = signing.NewKeySet(of(signing.ParseKeySet(t.Context(), fmt.Appendf(nil, `{"keys":[%s]}`, strings.Join(keys, ",")))).ok(t))
	r.signer = r.by["current"]
	return r
}

func (r *ring) append(t *testing.T, l *Log, key string, n int) (Appended, error) {
	t.Helper()
	return l.Append(within(t, time.Minute), entryOf(n), of(r.by[key].Sign(t.Context(), entryOf(n))).ok(t), Tag(entryOf(n)))
}

// A key that is closed at a tree size may sign new entries only for leaf indexes below that size. A
// logged entry keeps its index even if another key signs it again. A refused entry takes no index.
func TestClosedKeyGetsNoLaterLeaf(t *testing.T) {
	t.Parallel()
	r := newRing(t, 0, 2, 5)
	l := r.open(t, r.pool, nil)
	for n, step := range []struct {
		key   string
		index int64
	}{
		{"closed at 0", refused},
		{"closed at 2", 0},
		{"closed at 5", 1},
		{"closed at 2", refused},
		{"open", 2},
		{"next", 3}, // a replica whose clock is ahead may already sign with the next key
		{"closed at 5", 4},
		{"closed at 5", refused},
		{"current", 5},
		{"closed at 2", refused},
		{"open", 6},
	} {
		before := committedSize(t, r.deployment)
		appended, err := r.append(t, l, step.key, n)
		if step.index != refused {
			if err != nil || appended.LeafIndex != step.index {
				t.Errorf("step %d, %s: %+v, %v; want index %d", n, step.key, appended, err, step.index)
			}
			continue
		}
		limit := strings.TrimPrefix(step.key, "closed at ")
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "only leaves below index "+limit+":") || !strings.Contains(err.Error(), "sign the entry again with the current key") {
			t.Errorf("step %d, %s: %v, want ErrRefused that names index %s and what to do", n, step.key, err, limit)
		}
		if size := committedSize(t, r.deployment); size != before {
			t.Errorf("step %d: size %d after a refusal, want %d", n, size, before)
		}
	}
	for key := range r.by {
		if again, err := r.append(t, l, key, 1); err != nil || again.LeafIndex != 0 {
			t.Errorf("an entry that the log has, signed by the key %s: %+v, %v; want leaf 0", key, again, err)
		}
	}
	if appended, err := r.append(t, l, "current", 3); err != nil || appended.LeafIndex != 7 {
		t.Errorf("the refused entry, signed by the current key: %+v, %v; want leaf 7", appended, err)
	}
	if r := l.ProofFailures(); r != 0 {
		t.Errorf("%d contradictions are counted, want 0, because a refusal is none", r)
	}
}

// A new entry gets a leaf only if the leaf index is below the ceiling (the tree size at which the
// entry's key is closed). If an entry occurs twice in a batch, the higher ceiling counts.
func TestBatchOfMixedKeys(t *testing.T) {
	t.Parallel()
	_, l := newLog(t)
	var batch []candidate
	var want []sequenced
	for _, c := range []struct {
		entry          int
		ceiling, index int64
	}{
		{0, math.MaxInt64, 0}, {1, 2, 1}, {2, 2, late}, {3, math.MaxInt64, 2},
		{4, 2, 3}, {4, math.MaxInt64, 3},
		{5, 2, late}, {6, math.MaxInt64, 4}, {1, 2, 1}, {6, 2, 4},
	} {
		batch = append(batch, candidate{entryOf(c.entry), c.ceiling, Tag(entryOf(c.entry))})
		want = append(want, sequenced{index: c.index})
	}
	if got := of(l.sequencer.sequence(t.Context(), batch)).ok(t); !slices.Equal(got, want) {
		t.Errorf("results %v, want %v", got, want)
	}
}

func lockWaiters(t *testing.T, d *deployment) (n int) {
	t.Helper()
	err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
	check(t, err)
	return n
}

// A closed key may sign only leaves below a tree size. An entry by such a key waits for the lock
// while another replica adds a leaf. The tree size after the wait decides whether the entry gets a
// leaf.
func TestCeilingIsDecidedUnderTheLock(t *testing.T) {
	t.Parallel()
	for way, leaves := range map[string]int{"the head is looked up": 0, "the head in memory": 2} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := newRing(t, int64(leaves+1))
			waiting := r.open(t, openPool(t, r.url), nil)
			waitForHead(t, waiting, 0)
			for n := range leaves {
				r.mustAppend(t, waiting, 100+n)
			}
			var armed atomic.Bool
			holds, pass := make(chan struct{}), make(chan struct{})
			growing := r.open(t, wiredPool(t, r.url, func(_ net.Conn, message []byte) bool {
				if bytes.Contains(message, []byte("commit\x00")) && armed.CompareAndSwap(true, false) {
					close(holds)
					<-pass
				}
				return false
			}), nil)
			commit := sync.OnceFunc(func() { close(pass) })
			t.Cleanup(commit)
			armed.Store(true)
			var group sync.WaitGroup
			group.Go(func() {
				if appended, err := r.append(t, growing, "current", 0); err != nil || appended.LeafIndex != int64(leaves) {
					t.Errorf("the growing replica: %+v, %v; want leaf %d", appended, err, leaves)
				}
			})
			<-holds // the growing replica has written its leaf but not committed it
			group.Go(func() {
				if appended, err := r.append(t, waiting, fmt.Sprint("closed at ", leaves+1), 1); !errors.Is(err, ErrRefused) {
					t.Errorf("the waiting replica: %+v, %v; want ErrRefused", appended, err)
				}
			})
			eventually(t, "the second append waits for the lock", func() bool { return lockWaiters(t, r.deployment) == 1 })
			commit()
			group.Wait()
			if size := committedSize(t, r.deployment); size != int64(leaves+1) {
				t.Errorf("size %d, want %d", size, leaves+1)
			}
		})
	}
}

func TestNoNewHeadIsByAClosedOrUnknownKey(t *testing.T) {
	t.Parallel()
	r := newRing(t, 0, 100)
	r.by["unknown"], _ = newKey(t)
	for key, want := range map[string]string{"closed at 0": "a closed key, which must not sign a new head", "closed at 100": "a closed key, which must not sign a new head", "unknown": "verify the signature"} {
		l := r.open(t, openPool(t, r.url), r.by[key])
		eventually(t, "a round has failed with the key "+key, func() bool { return l.lastFailure() != nil })
		if why := l.lastFailure(); !strings.Contains(why.Error(), want) {
			t.Errorf("a head signed with the key %s: %v, want %q", key, why, want)
		}
		l.Close()
	}
	var heads int
	if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM translog.tree_heads").Scan(&heads); err != nil || heads != 0 {
		t.Errorf("%d heads are stored (%v), want 0", heads, err)
	}

	first := emptyRoot.head("")
	first.Signature = of(r.by["open"].Sign(t.Context(), first.Digest())).ok(t)
	check(t, second((&store{r.pool}).insertHead(t.Context(), first, nil, none)))
	l := r.open(t, r.pool, nil)
	if head := waitForHead(t, l, 0); head != first {
		t.Errorf("head of size 0: %+v, want the one that the retired key signed", head)
	}
	r.mustAppend(t, l, 0)
	head := waitForHead(t, l, 1)
	if key, err := r.keys.SignedBy(head.Digest(), head.Signature); err != nil || key.Label != r.by["current"].PublicKey() || l.ProofFailures() != 0 {
		t.Errorf("the next head is by %+v (%v), with %d contradictions; want the current key and 0", key, err, l.ProofFailures())
	}
}

// Verifiers refuse a head that is larger than the tree size at which its key is closed. So the
// log returns neither that head nor a proof that leads to that head.
func TestHeadOfAClosedKeyIsNotAnswered(t *testing.T) {
	t.Parallel()
	r := newRing(t, 1, 2)
	l := r.open(t, openPool(t, r.url), nil)
	r.mustAppend(t, l, 0, 1)
	l.Close()
	for key, answered := range map[string]bool{"closed at 1": false, "closed at 2": true} {
		head := root{2, refRoot(leavesOf(0, 2))}.head("")
		signature := of(r.by[key].Sign(t.Context(), head.Digest())).ok(t)
		asOwner(t, r.deployment, "UPDATE translog.tree_heads SET signature = '"+signature+"' WHERE tree_size = 2")
		l := r.open(t, openPool(t, r.url), nil)
		got, err := l.TreeHead(t.Context())
		proved := prove(t, l, 0)
		two := int64(2)
		sized, at := l.Consistency(t.Context(), 1, &two)
		switch {
		case answered && (err != nil || got.Signature != signature || proved != nil || at != nil || l.ProofFailures() != 0):
			t.Errorf("%s: %v, %v, %v, %d contradictions; want its head", key, err, proved, at, l.ProofFailures())
		case !answered && (!errors.Is(err, ErrInconsistent) || !errors.Is(proved, ErrInconsistent) || l.ProofFailures() != 2):
			t.Errorf("%s: %+v, %v, %v, %d contradictions; want ErrInconsistent twice", key, got, err, proved, l.ProofFailures())
		case !answered && !errors.Is(at, errNoHead):
			t.Errorf("%s: a proof to its head by size: %+v, %v; want errNoHead", key, sized, at)
		}
		if err := l.Ready(t.Context()); err != nil {
			t.Errorf("%s: Ready: %v, want no error, because the next append makes a valid head", key, err)
		}
		l.Close()
	}
	signature := of(r.by["closed at 1"].Sign(t.Context(), root{2, refRoot(leavesOf(0, 2))}.head("").Digest())).ok(t)
	asOwner(t, r.deployment, "UPDATE translog.tree_heads SET signature = '"+signature+"' WHERE tree_size = 2")
	l = r.open(t, r.pool, nil)
	r.mustAppend(t, l, 2)
	if head, err := l.TreeHead(t.Context()); err != nil || head.TreeSize != 3 {
		t.Errorf("newest head after one more leaf: %+v, %v; want size 3", head, err)
	}
	if err := prove(t, l, 0); err != nil {
		t.Errorf("prove leaf 0 after one more leaf: %v, want a proof", err)
	}
}
