package translog

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/transparency-dev/merkle/testonly"
)

func reference(leaves [][]byte) *testonly.Tree {
	tree := testonly.New(hasher)
	tree.AppendData(leaves...)
	return tree
}

func refRoot(leaves [][]byte) []byte { return reference(leaves).Hash() }

func TestTreeAgreesWithTheReference(t *testing.T) {
	t.Parallel()
	_, l := newLog(t)
	random := rand.New(rand.NewPCG(1, 2))
	var leaves [][]byte
	var published []int
	tree := reference(nil)

	for _, size := range []int{0, 1, 2, 3, 4, 7, 8, 255, 256, 257, 511, 512, 513, 767, 65535, 65536, 65537, 65792, 70001} {
		for first := len(leaves); first < size; first = len(leaves) {
			end := min(size, first+1+random.IntN(size))
			leaves = append(leaves, leavesOf(first, end)...)
			tree.AppendData(leaves[first:]...)
			fill(t, l, first, end)
		}
		checkTree(t, l, tree, leaves, indexes(size, random))
		for _, first := range published {
			checkConsistency(t, l, tree, first)
		}
		published = append(published, size)
	}
	requireNoContradiction(t, l)
}

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

func checkHeadAndPaths(t *testing.T, l *Log, leaves [][]byte, indexes []int) {
	t.Helper()
	checkTree(t, l, reference(leaves), leaves, indexes)
}

func checkTree(t *testing.T, l *Log, tree *testonly.Tree, leaves [][]byte, indexes []int) {
	t.Helper()
	size := int64(len(leaves))
	head := waitForHead(t, l, size)
	if want := hex.EncodeToString(tree.Hash()); head.RootHash != want {
		t.Fatalf("root of size %d: %s, want %s", size, head.RootHash, want)
	}
	if newest, err := l.TreeHead(t.Context()); err != nil || newest != head {
		t.Fatalf("newest head %+v (%v), want %+v", newest, err, head)
	}
	for _, n := range indexes {
		entry, index := [32]byte(leaves[n]), int64(n)
		got, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &index, TreeSize: &size})
		if err != nil {
			t.Fatalf("prove leaf %d in size %d: %v", n, size, err)
		}
		path := of(tree.InclusionProof(uint64(n), uint64(size))).ok(t)
		want := Inclusion{TreeHead: head, LeafIndex: index, Entry: hex.EncodeToString(leaves[n]), Path: toHex(path)}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("leaf %d in size %d:\n got %+v\nwant %+v", n, size, got, want)
		}
		if err := verify(got, entry); err != nil {
			t.Fatalf("the proof of leaf %d in size %d does not verify: %v", n, size, err)
		}
		byEntry, err := l.Inclusion(t.Context(), LeafQuery{Entry: &entry})
		if err != nil || byEntry.LeafIndex != index || !slices.Equal(byEntry.Path, want.Path) {
			t.Fatalf("prove the entry of leaf %d in size %d: %+v (%v), want the same path", n, size, byEntry, err)
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
		t.Fatalf("prove that size %d is extended by size %d: %v", first, second, err)
	}
	var path [][]byte // nil if the first tree is empty, because the proof then has no nodes
	if first > 0 {
		path = of(tree.ConsistencyProof(uint64(first), uint64(second))).ok(t)
	}
	want := Consistency{waitForHead(t, l, int64(first)), waitForHead(t, l, second), toHex(path)}
	if !reflect.DeepEqual(got, want) || got.First.RootHash != hex.EncodeToString(tree.HashAt(uint64(first))) {
		t.Fatalf("consistency of %d and %d:\n got %v\nwant %v", first, second, got, want)
	}
}
