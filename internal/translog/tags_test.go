package translog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func (d *deployment) tagged(t testing.TB, l *Log, n int, tag Tag) (int64, error) {
	t.Helper()
	appended, err := l.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), tag)
	return appended.LeafIndex, err
}

func takenBy(leaf int64) func(int64, error) error {
	return func(_ int64, err error) error {
		if !errors.Is(err, ErrTagTaken) || !strings.HasSuffix(err.Error(), fmt.Sprintf("leaf %d", leaf)) {
			return fmt.Errorf("%v, want that leaf %d has the tag", err, leaf)
		}
		return nil
	}
}

func isAt(leaf int64) func(int64, error) error {
	return func(index int64, err error) error {
		if err != nil || index != leaf {
			return fmt.Errorf("leaf %d, %v; want leaf %d", index, err, leaf)
		}
		return nil
	}
}

func TestATagHasOneEntry(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l, other := d.open(t, d.pool, nil), d.open(t, openPool(t, d.url), nil)
	tag := func(n int) Tag { return Tag(entryOf(1000 + n)) }

	check(t, isAt(0)(d.tagged(t, l, 0, tag(0))))
	t.Run("the same entry keeps its leaf", func(t *testing.T) {
		for _, replica := range []*Log{l, other} {
			check(t, isAt(0)(d.tagged(t, replica, 0, tag(0))))
		}
	})
	t.Run("another entry is refused, and so is another tag", func(t *testing.T) {
		for _, replica := range []*Log{l, other} {
			check(t, takenBy(0)(d.tagged(t, replica, 1, tag(0))))
			if _, err := d.tagged(t, replica, 0, tag(1)); !errors.Is(err, ErrRefused) {
				t.Errorf("a logged entry with another tag: %v, want ErrRefused", err)
			}
		}
		check(t, isAt(1)(d.tagged(t, l, 1, tag(1))))
	})
	t.Run("in one batch", func(t *testing.T) {
		for what, warm := range map[string]bool{"in one statement": true, "under the lock": false} {
			size := committedSize(t, d)
			base := int(size) * 10
			c := func(n int, tag Tag) candidate { return candidate{entryOf(base + n), math.MaxInt64, tag} }
			if warm {
				check(t, second(l.sequencer.sequence(t.Context(), candidatesOf(base+9, base+10))))
				size++
			} else {
				l.sequencer.known = nil
			}
			got, err := l.sequencer.sequence(t.Context(), []candidate{
				c(0, tag(base)), c(1, tag(base)), c(0, tag(base)), c(2, tag(base+1)), c(2, tag(base+2)), c(3, tag(0))})
			check(t, err)
			want := []sequenced{{size, false}, {size, true}, {size, false}, {size + 1, false}, {refused, false}, {0, true}}
			if fmt.Sprint(got) != fmt.Sprint(want) || committedSize(t, d) != size+2 {
				t.Errorf("%s: %v, want %v, in a log of %d", what, got, want, size)
			}
			check(t, takenBy(size+1)(d.tagged(t, other, base+4, tag(base+1))))
		}
	})
	t.Run("an entry that is refused for its key does not take the tag", func(t *testing.T) {
		got := of(l.sequencer.sequence(t.Context(), []candidate{{entryOf(900), 0, tag(900)}, {entryOf(901), math.MaxInt64, tag(900)}})).ok(t)
		if got[0].index != late || got[1].taken || got[1].index < 0 {
			t.Errorf("results %v, want the first entry late and the second one with a leaf", got)
		}
	})
	requireNoContradiction(t, l, other)
}

func TestConcurrentEntriesWithOneTag(t *testing.T) {
	t.Parallel()
	const tags, each = 12, 8
	d := newDeployment(t)
	replicas := []*Log{d.open(t, d.pool, nil), d.open(t, openPool(t, d.url), nil)}
	var logged [tags][each]bool
	var group sync.WaitGroup
	for n := range tags * each {
		group.Go(func() {
			_, err := d.tagged(t, replicas[n%2], n, Tag(entryOf(1000+n/each)))
			if err != nil && !errors.Is(err, ErrTagTaken) {
				t.Errorf("append entry %d: %v, want a leaf or ErrTagTaken", n, err)
			}
			logged[n/each][n%each] = err == nil
		})
	}
	group.Wait()
	for n, all := range logged {
		won := 0
		for _, one := range all {
			if one {
				won++
			}
		}
		if won != 1 {
			t.Errorf("tag %d: %d entries of %d were logged, want 1", n, won, each)
		}
	}
	if size := committedSize(t, d); size != tags {
		t.Errorf("%d leaves, want one for each of %d tags", size, tags)
	}
	requireNoContradiction(t, replicas...)
}

func TestReturn(t *testing.T) {
	t.Parallel()
	whole, restored := newDeployment(t), newDeployment(t)
	tag := func(n int) Tag { return Tag(entryOf(1000 + n)) }
	var all []TaggedLeaf
	l, r := whole.open(t, whole.pool, nil), restored.open(t, restored.pool, nil)
	for n := range 5 {
		check(t, isAt(int64(n))(whole.tagged(t, l, n, tag(n))))
		all = append(all, TaggedLeaf{int64(n), entryOf(n), tag(n)})
	}
	for n := range 2 {
		check(t, isAt(int64(n))(restored.tagged(t, r, n, tag(n))))
	}
	head := waitForHead(t, l, 5)
	changed := func(change func([]TaggedLeaf)) []TaggedLeaf {
		leaves := slices.Clone(all)
		change(leaves)
		return leaves
	}
	for what, leaves := range map[string][]TaggedLeaf{
		"none":             nil,
		"one missing":      slices.Delete(slices.Clone(all), 3, 4),
		"the last missing": all[:4],
		"one too many":     append(slices.Clone(all), TaggedLeaf{5, entryOf(5), tag(5)}),
		"another entry":    changed(func(l []TaggedLeaf) { l[3].Entry = entryOf(9) }),
		"another order":    changed(func(l []TaggedLeaf) { l[3].Entry, l[4].Entry = l[4].Entry, l[3].Entry }),
	} {
		if n, err := Return(t.Context(), restored.pool, leaves, head); !errors.Is(err, ErrRefused) || n != 0 {
			t.Errorf("%s: %d leaves returned, %v; want 0 and ErrRefused", what, n, err)
		}
	}
	if size := committedSize(t, restored); size != 2 {
		t.Fatalf("the log has %d leaves, want 2: it took refused ones", size)
	}
	slices.Reverse(all)
	for i, want := range []int{3, 0} {
		if n, err := Return(t.Context(), restored.pool, all, head); err != nil || n != want {
			t.Errorf("run %d: %d leaves returned, want %d: %v", i+1, n, want, err)
		}
	}
	rows, _ := restored.pool.Query(t.Context(), "SELECT leaf_index FROM translog.returned ORDER BY 1")
	if recorded := of(pgx.CollectRows(rows, pgx.RowTo[int64])).ok(t); !slices.Equal(recorded, []int64{2, 3, 4}) {
		t.Errorf("recorded as returned: leaves %v, want 2, 3 and 4", recorded)
	}
	for want, leaf := range map[bool]TaggedLeaf{true: {3, entryOf(3), tag(3)}, false: {3, entryOf(3), tag(4)}} {
		if found, err := Has(t.Context(), restored.pool, leaf); err != nil || found != want {
			t.Errorf("the log has leaf %v: %t, %v; want %t", leaf, found, err, want)
		}
	}
	if next := restored.mustAppend(t, r, 5); next.LeafIndex != 5 {
		t.Errorf("the next leaf is %d, want 5", next.LeafIndex)
	}
	check(t, takenBy(3)(restored.tagged(t, r, 7, tag(3))))
	requireNoContradiction(t, l, r)
}
