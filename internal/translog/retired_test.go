package translog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

// ring is a deployment in the middle of its history of keys.
type ring struct {
	*deployment
	by map[string]*signing.Signer
}

// newRing makes a set of a current, a next, a retired and open key, and keys
// that are closed at the tree sizes given, as "closed at N".
func newRing(t *testing.T, closedAt ...int64) *ring {
	t.Helper()
	r := &ring{newDeployment(t), map[string]*signing.Signer{}}
	var list []map[string]any
	add := func(name, state string, size *int64) {
		signer, _ := newKey(t)
		r.by[name] = signer
		entry := map[string]any{"pubkey": signer.PublicKey()}
		switch state {
		case signing.StateCurrent:
			entry["uri"], entry["signs_from"] = "dev://key", time.Now().Unix()-1000
		case signing.StateNext: // accepted, as its margin has begun
			entry["uri"], entry["signs_from"] = "dev://next", time.Now().Unix()+100
		}
		if size != nil {
			entry["tree_size"] = *size
		}
		list = append(list, entry)
	}
	add("current", signing.StateCurrent, nil)
	add("next", signing.StateNext, nil)
	add("open", signing.StateRetired, nil)
	for _, size := range closedAt {
		add(fmt.Sprint("closed at ", size), signing.StateRetired, &size)
	}
	document, err := json.Marshal(map[string]any{"keys": list})
	check(t, err)
	if r.keys, err = signing.ParseKeySet(document); err != nil {
		t.Fatal(err)
	}
	r.signer = r.by["current"]
	return r
}

// append brings entry n with a signature of the named key.
func (r *ring) append(t *testing.T, l *Log, key string, n int) (Appended, error) {
	t.Helper()
	return l.Append(within(t, time.Minute), entryOf(n), r.signed(t, key, n), Tag{})
}

func (r *ring) signed(t *testing.T, key string, n int) string {
	t.Helper()
	signature, err := r.by[key].Sign(t.Context(), entryOf(n))
	check(t, err)
	return signature
}

// A closed key has the leaves below its tree size and no other, whether that
// lies in the past of the tree or in its future; what is in the log keeps its
// index whoever signed it, and a refusal leaves no hole.
func TestClosedKeyHasNoLaterLeaf(t *testing.T) {
	t.Parallel()
	r := newRing(t, 0, 2, 5)
	l := r.open(t, r.pool, nil)
	for n, step := range []struct {
		key   string
		index int64 // refused: the log takes no new leaf under the key
	}{
		{"closed at 0", refused}, // closed before it had a leaf
		{"closed at 2", 0},
		{"closed at 5", 1},
		{"closed at 2", refused}, // the tree has 2 leaves now
		{"open", 2},
		{"next", 3}, // of a replica that has been rolled on already
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
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no leaf from index "+limit+" on") || !strings.Contains(err.Error(), "sign it again with the current key") {
			t.Errorf("step %d, %s: %v, want ErrRefused that names index %s and what to do", n, step.key, err, limit)
		}
		if size := committedSize(t, r.deployment); size != before {
			t.Errorf("step %d: size %d after a refusal, was %d", n, size, before)
		}
	}
	// The leaf of step 1 is at 0, in the time of any of these keys or after it.
	for key := range r.by {
		if again, err := r.append(t, l, key, 1); err != nil || again.LeafIndex != 0 {
			t.Errorf("an entry that the log has, by the key %s: %+v, %v", key, again, err)
		}
	}
	// What was refused is taken with the current key's signature.
	if appended, err := r.append(t, l, "current", 3); err != nil || appended.LeafIndex != 7 {
		t.Errorf("signed again: %+v, %v", appended, err)
	}
	if r := l.ProofFailures(); r != 0 {
		t.Errorf("%d contradictions: a refusal is none", r)
	}
}

// The callers of one batch bring signatures of all kinds of keys: each is judged
// at the index that it would have, and an entry that comes with several
// signatures by the best of them.
func TestBatchOfMixedKeys(t *testing.T) {
	t.Parallel()
	r := newRing(t, 2)
	l := r.open(t, r.pool, nil)
	waitForHead(t, l, 0)

	// While the row is locked the first append is a batch that waits, and what
	// comes after it is queued.
	lock, err := r.pool.Begin(t.Context())
	check(t, err)
	check(t, second(lock.Exec(t.Context(), sqlLockHead)))
	steps := []struct {
		key   string
		entry int
		index int64
	}{
		{"current", 0, 0},
		{"closed at 2", 1, 1},
		{"closed at 2", 2, late},
		{"open", 3, 2},
		{"closed at 2", 4, 3}, // with its signature alone it would be late
		{"current", 4, 3},
		{"closed at 2", 5, late},
		{"current", 6, 4},
		{"closed at 2", 1, 1},
		{"closed at 2", 6, 4},
	}
	places := make([]Appended, len(steps))
	errs := make([]error, len(steps))
	var group sync.WaitGroup
	for i, step := range steps {
		signature := r.signed(t, step.key, step.entry)
		group.Go(func() {
			places[i], errs[i] = l.Append(within(t, time.Minute), entryOf(step.entry), signature, Tag{})
		})
		eventually(t, "the append is taken or queued", func() bool {
			l.sequencer.mu.Lock()
			defer l.sequencer.mu.Unlock()
			return i == 0 && len(l.sequencer.waiting) == 0 && lockWaiters(t, r.deployment) == 1 || i > 0 && len(l.sequencer.waiting) == i
		})
	}
	check(t, lock.Rollback(t.Context()))
	group.Wait()
	for i, step := range steps {
		switch {
		case step.index == late && !errors.Is(errs[i], ErrRefused):
			t.Errorf("step %d, entry %d by %s: %+v, %v; want ErrRefused", i, step.entry, step.key, places[i], errs[i])
		case step.index != late && (errs[i] != nil || places[i].LeafIndex != step.index):
			t.Errorf("step %d, entry %d by %s: %+v, %v; want index %d", i, step.entry, step.key, places[i], errs[i], step.index)
		}
	}
	if size := committedSize(t, r.deployment); size != 5 {
		t.Errorf("size %d, want 5", size)
	}
}

// lockWaiters counts the transactions that wait for a row.
func lockWaiters(t *testing.T, d *deployment) (n int) {
	t.Helper()
	err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
	check(t, err)
	return n
}

// Another replica grows the tree while a leaf under a closed key waits for the
// lock: the size that decides is the one that the lock's last holder left, also
// where the waiting replica appends to the head in its memory.
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
					t.Errorf("the growing replica: %+v, %v", appended, err)
				}
			})
			<-holds // its leaf is written, and not committed
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

// A new head of a closed key is not stored, whatever key of the set the signer
// holds; heads of old keys stay good.
func TestNoNewHeadIsByAClosedKey(t *testing.T) {
	t.Parallel()
	r := newRing(t, 0, 100)
	for _, key := range []string{"closed at 0", "closed at 100"} {
		l := r.open(t, openPool(t, r.url), r.by[key])
		var why error
		eventually(t, "a round has failed with the key "+key, func() bool {
			l.publisher.mu.Lock()
			defer l.publisher.mu.Unlock()
			why = l.publisher.lastErr
			_, err := l.TreeHead(t.Context())
			return why != nil || err == nil
		})
		if why == nil || !strings.Contains(why.Error(), "a closed key signs no new head") {
			t.Errorf("%s: %v", key, why)
		}
		l.Close()
	}
	var heads int
	if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM translog.tree_heads").Scan(&heads); err != nil || heads != 0 {
		t.Errorf("%d heads are stored (%v)", heads, err)
	}

	first := emptyRoot.head("")
	var err error
	if first.Signature, err = r.by["open"].Sign(context.WithoutCancel(t.Context()), first.Digest()); err != nil {
		t.Fatal(err)
	}
	check(t, second((&store{r.pool}).insertHead(t.Context(), first, nil)))
	l := r.open(t, r.pool, nil)
	if head := waitForHead(t, l, 0); head != first {
		t.Errorf("%+v, want the head that the retired key signed", head)
	}
	r.mustAppend(t, l, 0)
	head := waitForHead(t, l, 1)
	if key, err := r.keys.SignedBy(head.Digest(), head.Signature); err != nil || key.PublicKey != r.by["current"].PublicKey() || l.ProofFailures() != 0 {
		t.Errorf("the next head is by %+v (%v), %d contradictions", key, err, l.ProofFailures())
	}
}
