package translog

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairpact/fairpact/internal/canon"
)

// The log of every size around the edges of tiles gives the root, the paths and
// the consistency proofs of the reference, whatever the batches were.
func TestTreeAgainstReference(t *testing.T) {
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var data [][]byte
	var published []int

	for _, size := range []int{0, 1, 2, 3, 4, 7, 8, 255, 256, 257, 511, 512, 513, 767, 65535, 65536, 65537, 65792, 70001} {
		for first := len(data); first < size; first = len(data) {
			end := min(size, first+1+random.IntN(size))
			for _, e := range entriesOf(first, end) {
				data = append(data, e[:])
			}
			fill(t, l, first, end)
		}
		checkHeadAndPaths(t, l, data, indexes(size, random))
		for _, first := range published {
			checkConsistency(t, l, data, first)
		}
		published = append(published, size)
	}
	if n := l.ProofFailures(); n != 0 {
		t.Errorf("%d contradictions in a sound log", n)
	}
}

// indexes are all leaves of a small tree and some of a large one.
func indexes(size int, random *rand.Rand) (list []int) {
	if size <= 257 {
		for n := range size {
			list = append(list, n)
		}
		return list
	}
	for _, n := range []int{0, 1, 255, 256, 511, 512, 65535, 65536, size - 1, random.IntN(size), random.IntN(size)} {
		if n < size {
			list = append(list, n)
		}
	}
	return list
}

func checkHeadAndPaths(t *testing.T, l *Log, data [][]byte, indexes []int) {
	t.Helper()
	size := int64(len(data))
	head := waitForHead(t, l, size)
	if want := hex.EncodeToString(refRoot(data)); head.RootHash != want {
		t.Fatalf("root of size %d: %s, want %s", size, head.RootHash, want)
	}
	if newest, err := l.TreeHead(t.Context()); err != nil || newest != head {
		t.Fatalf("newest head %+v (%v), want %+v", newest, err, head)
	}
	for _, n := range indexes {
		entry, index := [32]byte(data[n]), int64(n)
		got, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &index, TreeSize: &size})
		if err != nil {
			t.Fatalf("leaf %d in size %d: %v", n, size, err)
		}
		want := Inclusion{TreeHead: head, LeafIndex: index, Entry: hex.EncodeToString(data[n]), Path: toHex(refPath(n, data))}
		if got.TreeHead != want.TreeHead || got.LeafIndex != index || got.Entry != want.Entry || !slices.Equal(got.Path, want.Path) {
			t.Fatalf("leaf %d in size %d:\n got %+v\nwant %+v", n, size, got, want)
		}
		if err := got.Verify(entry); err != nil {
			t.Fatalf("leaf %d in size %d: %v", n, size, err)
		}
		byEntry, err := l.Inclusion(t.Context(), LeafQuery{Entry: &entry})
		if err != nil || byEntry.LeafIndex != index || !slices.Equal(byEntry.Path, want.Path) {
			t.Fatalf("entry of leaf %d in size %d: %+v (%v)", n, size, byEntry, err)
		}
	}
	if _, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &size}); !errors.Is(err, ErrNotFound) {
		t.Errorf("leaf %d of size %d: %v, want ErrNotFound", size, size, err)
	}
}

func checkConsistency(t *testing.T, l *Log, data [][]byte, first int) {
	t.Helper()
	second := int64(len(data))
	got, err := l.Consistency(t.Context(), int64(first), &second)
	if err != nil {
		t.Fatalf("consistency of %d and %d: %v", first, second, err)
	}
	if want := toHex(refProof(first, data)); !slices.Equal(got.Path, want) {
		t.Fatalf("consistency of %d and %d:\n got %v\nwant %v", first, second, got.Path, want)
	}
	if got.First.TreeSize != int64(first) || got.Second.TreeSize != second || got.First.RootHash != hex.EncodeToString(refRoot(data[:first])) {
		t.Fatalf("consistency of %d and %d is with heads %+v and %+v", first, second, got.First, got.Second)
	}
}

// A path proves its own leaf and no other.
func TestInclusionVerifyRefuses(t *testing.T) {
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	fill(t, l, 0, 300)
	index := int64(270)
	good, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &index})
	if err != nil {
		t.Fatal(err)
	}
	if err := good.Verify(entryOf(271)); err == nil {
		t.Error("verified another entry")
	}
	for name, change := range map[string]func(*Inclusion){
		"another index":       func(i *Inclusion) { i.LeafIndex-- },
		"index past the size": func(i *Inclusion) { i.LeafIndex = i.TreeSize },
		"negative index":      func(i *Inclusion) { i.LeafIndex = -1 },
		"another size":        func(i *Inclusion) { i.TreeSize = 1 << 20 },
		"another root":        func(i *Inclusion) { i.RootHash = i.Path[0] },
		"a shorter path":      func(i *Inclusion) { i.Path = i.Path[1:] },
		"a longer path":       func(i *Inclusion) { i.Path = append(i.Path, i.Path[0]) },
		"a path of words":     func(i *Inclusion) { i.Path[0] = "node" },
		"upper-case hex":      func(i *Inclusion) { i.RootHash = "AB" + i.RootHash[2:] },
	} {
		bad := good
		bad.Path = slices.Clone(good.Path)
		change(&bad)
		if err := bad.Verify(entryOf(270)); err == nil {
			t.Errorf("%s: verified", name)
		}
	}
}

// SPEC 2.7: the message of a head is the canonical form of {tree_size, root_hash}.
func TestMessageIsCanonical(t *testing.T) {
	for _, size := range []int64{0, 1, 1 << 40, maxSize} {
		head := root{size, refLeaf([]byte{byte(size)})}.head("es256:ab")
		want := canon.Encode(map[string]any{"tree_size": size, "root_hash": head.RootHash})
		if got := head.Message(); string(got) != string(want) {
			t.Errorf("message %s, want %s", got, want)
		}
	}
}
