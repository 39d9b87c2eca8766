package translog

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/transparency-dev/merkle/testonly"

	"github.com/fairpact/fairpact/internal/canon"
)

// reference is the tree of the leaves, in memory and without tiles.
func reference(data [][]byte) *testonly.Tree {
	tree := testonly.New(hasher)
	tree.AppendData(data...)
	return tree
}

func refRoot(data [][]byte) []byte { return reference(data).Hash() }

// The log of every size around the edges of tiles gives the root, the paths and
// the consistency proofs of the reference, whatever the batches were.
func TestTreeAgainstReference(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var leaves [][]byte
	var published []int
	tree := reference(nil)

	for _, size := range []int{0, 1, 2, 3, 4, 7, 8, 255, 256, 257, 511, 512, 513, 767, 65535, 65536, 65537, 65792, 70001} {
		for first := len(leaves); first < size; first = len(leaves) {
			end := min(size, first+1+random.IntN(size))
			leaves = append(leaves, data(first, end)...)
			tree.AppendData(leaves[first:]...)
			fill(t, l, first, end)
		}
		checkTree(t, l, tree, leaves, indexes(size, random))
		for _, first := range published {
			checkConsistency(t, l, tree, first)
		}
		published = append(published, size)
	}
	sound(t, l)
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
	checkTree(t, l, reference(data), data, indexes)
}

// checkTree compares the log with the reference tree of its data.
func checkTree(t *testing.T, l *Log, tree *testonly.Tree, data [][]byte, indexes []int) {
	t.Helper()
	size := int64(len(data))
	head := waitForHead(t, l, size)
	if want := hex.EncodeToString(tree.Hash()); head.RootHash != want {
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
		path, err := tree.InclusionProof(uint64(n), uint64(size))
		check(t, err)
		want := Inclusion{TreeHead: head, LeafIndex: index, Entry: hex.EncodeToString(data[n]), Path: toHex(path)}
		if !reflect.DeepEqual(got, want) {
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

func checkConsistency(t *testing.T, l *Log, tree *testonly.Tree, first int) {
	t.Helper()
	second := int64(tree.Size())
	got, err := l.Consistency(t.Context(), int64(first), &second)
	if err != nil {
		t.Fatalf("consistency of %d and %d: %v", first, second, err)
	}
	var path [][]byte // from the empty tree it is empty
	if first > 0 {
		path, err = tree.ConsistencyProof(uint64(first), uint64(second))
		check(t, err)
	}
	want := Consistency{waitForHead(t, l, int64(first)), waitForHead(t, l, second), toHex(path)}
	if !reflect.DeepEqual(got, want) || got.First.RootHash != hex.EncodeToString(tree.HashAt(uint64(first))) {
		t.Fatalf("consistency of %d and %d:\n got %v\nwant %v", first, second, got, want)
	}
}

// A path proves its own leaf and no other.
func TestInclusionVerifyRefuses(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	fill(t, l, 0, 300)
	index := int64(270)
	good, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &index})
	check(t, err)
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
	t.Parallel()
	for _, size := range []int64{0, 1, 1 << 40, maxSize} {
		head := root{size, hasher.HashLeaf([]byte{byte(size)})}.head("es256:ab")
		want := canon.Encode(map[string]any{"tree_size": size, "root_hash": head.RootHash})
		if got := head.Message(); string(got) != string(want) {
			t.Errorf("message %s, want %s", got, want)
		}
	}
}
