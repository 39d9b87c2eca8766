package translog

import (
	"errors"
	"slices"
	"testing"
)

// A database that came back without its newest leaves takes them again, all or
// none, and only as they were signed.
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
		"none":           nil,
		"without one":    slices.Delete(slices.Clone(all), 3, 4),
		"without a last": all[:4],
		"one too many":   append(slices.Clone(all), TaggedLeaf{5, entryOf(5), tag(5)}),
		"another entry":  changed(func(l []TaggedLeaf) { l[3].Entry = entryOf(9) }),
		"in other order": changed(func(l []TaggedLeaf) { l[3].Entry, l[4].Entry = l[4].Entry, l[3].Entry }),
	} {
		if n, err := Return(t.Context(), restored.pool, leaves, head); !errors.Is(err, ErrRefused) || n != 0 {
			t.Errorf("%s: %d leaves are back, %v", what, n, err)
		}
	}
	if size := committedSize(t, restored); size != 2 {
		t.Fatalf("refused leaves are in the log of size %d", size)
	}
	slices.Reverse(all)
	for i, want := range []int{3, 0} {
		if n, err := Return(t.Context(), restored.pool, all, head); err != nil || n != want {
			t.Errorf("run %d: %d leaves are back, want %d: %v", i+1, n, want, err)
		}
	}
	if next := restored.mustAppend(t, r, 5); next.LeafIndex != 5 {
		t.Errorf("the next leaf is %d", next.LeafIndex)
	}
	check(t, takenBy(3)(restored.tagged(t, r, 7, tag(3))))
	sound(t, l, r)
}
