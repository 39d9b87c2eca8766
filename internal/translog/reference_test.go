package translog

import (
	"bytes"
	"crypto/sha256"
	"math/bits"
	"testing"

	"github.com/transparency-dev/merkle/testonly"
)

// The tree by the letter of RFC 6962 2.1, recursive and slow: what the log is
// held against.

func refLeaf(data []byte) []byte {
	h := sha256.Sum256(append([]byte{0}, data...))
	return h[:]
}

func refNode(left, right []byte) []byte {
	h := sha256.Sum256(append(append([]byte{1}, left...), right...))
	return h[:]
}

// split is the largest power of two smaller than n.
func split(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

// refRoot is MTH(D[n]) of RFC 6962 2.1.
func refRoot(d [][]byte) []byte {
	switch len(d) {
	case 0:
		h := sha256.Sum256(nil)
		return h[:]
	case 1:
		return refLeaf(d[0])
	}
	k := split(len(d))
	return refNode(refRoot(d[:k]), refRoot(d[k:]))
}

// refPath is PATH(m, D[n]) of RFC 6962 2.1.1.
func refPath(m int, d [][]byte) [][]byte {
	if len(d) == 1 {
		return nil
	}
	if k := split(len(d)); m < k {
		return append(refPath(m, d[:k]), refRoot(d[k:]))
	} else {
		return append(refPath(m-k, d[k:]), refRoot(d[:k]))
	}
}

// refProof is PROOF(m, D[n]) of RFC 6962 2.1.2.
func refProof(m int, d [][]byte) [][]byte {
	if m == 0 || m == len(d) {
		return nil
	}
	return refSubproof(m, d, true)
}

func refSubproof(m int, d [][]byte, known bool) [][]byte {
	if m == len(d) {
		if known {
			return nil
		}
		return [][]byte{refRoot(d)}
	}
	if k := split(len(d)); m <= k {
		return append(refSubproof(m, d[:k], known), refRoot(d[k:]))
	} else {
		return append(refSubproof(m-k, d[k:], false), refRoot(d[:k]))
	}
}

// The reference and the arithmetic of the log both give the published roots of
// the well-known eight leaves.
func TestKnownRoots(t *testing.T) {
	leaves, roots := testonly.LeafInputs(), testonly.RootHashes()
	tree := ranges.NewEmptyRange(0)
	for size := range len(leaves) + 1 {
		if got := refRoot(leaves[:size]); !bytes.Equal(got, roots[size]) {
			t.Errorf("reference root of size %d: %x, want %x", size, got, roots[size])
		}
		got, err := tree.GetRootHash(nil)
		if size == 0 {
			got = emptyRoot.hash
		}
		if err != nil || !bytes.Equal(got, roots[size]) {
			t.Errorf("root of size %d: %x (%v), want %x", size, got, err, roots[size])
		}
		if size < len(leaves) {
			if err := tree.Append(hasher.HashLeaf(leaves[size]), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}
