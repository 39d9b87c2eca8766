package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// The functions from leafHash to auditPath are a reference implementation of RFC 6962 2.1 and
// 2.1.1, recursive as in the RFC.

func leafHash(leaf []byte) []byte {
	sum := sha256.Sum256(append([]byte{0x00}, leaf...))
	return sum[:]
}

func nodeHash(left, right []byte) []byte {
	sum := sha256.Sum256(slices.Concat([]byte{0x01}, left, right))
	return sum[:]
}

func split(n int) int {
	k := 1
	for k<<1 < n {
		k <<= 1
	}
	return k
}

func treeHash(leaves [][]byte) []byte {
	switch len(leaves) {
	case 0:
		sum := sha256.Sum256(nil)
		return sum[:]
	case 1:
		return leafHash(leaves[0])
	}
	k := split(len(leaves))
	return nodeHash(treeHash(leaves[:k]), treeHash(leaves[k:]))
}

func auditPath(m int, leaves [][]byte) []string {
	if len(leaves) == 1 {
		return []string{}
	}
	if k := split(len(leaves)); m < k {
		return append(auditPath(m, leaves[:k]), hex.EncodeToString(treeHash(leaves[k:])))
	} else {
		return append(auditPath(m-k, leaves[k:]), hex.EncodeToString(treeHash(leaves[:k])))
	}
}

// The leaves and the roots are test vectors of the Certificate Transparency project.
func TestInputRootOfPublishedLeaves(t *testing.T) {
	var leaves [][]byte
	for _, text := range []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"} {
		leaf, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leaf)
	}
	for n, want := range []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	} {
		if got := InputRoot(leaves[:n]); got != "sha256:"+want {
			t.Errorf("root of %d leaves: %s, want %s", n, got, want)
		}
		if got := hex.EncodeToString(treeHash(leaves[:n])); got != want {
			t.Errorf("reference root of %d leaves: %s, want %s", n, got, want)
		}
	}
}

func logOf(size int) (entries [][32]byte, leaves [][]byte, root string) {
	for i := range size {
		entry := Entry(fmt.Appendf(nil, "certificate %d", i))
		entries, leaves = append(entries, entry), append(leaves, entry[:])
	}
	return entries, leaves, hex.EncodeToString(treeHash(leaves))
}

func TestVerifyInclusionIsStrict(t *testing.T) {
	entries, leaves, root := logOf(5)
	zero, entry := strings.Repeat("0", 64), entries[2]
	good := LogProof{TreeSize: 5, LeafIndex: 2, InclusionPath: auditPath(2, leaves)}
	if err := VerifyInclusion(entry, good, root); err != nil {
		t.Fatal(err)
	}
	if VerifyInclusion(entries[3], good, root) == nil {
		t.Error("the proof of one entry verifies for another, want it refused")
	}
	for what, change := range map[string]func(*LogProof){
		"a node too many":          func(p *LogProof) { p.InclusionPath = append(p.InclusionPath, zero) },
		"an index beyond the tree": func(p *LogProof) { p.LeafIndex = p.TreeSize },
		"a negative index":         func(p *LogProof) { p.LeafIndex = -1 },
		"a negative size":          func(p *LogProof) { p.TreeSize = -p.TreeSize },
		"a node too few":           func(p *LogProof) { p.InclusionPath = p.InclusionPath[1:] },
		"another node":             func(p *LogProof) { p.InclusionPath[2] = zero },
		"a node in upper case":     func(p *LogProof) { p.InclusionPath[0] = strings.ToUpper(p.InclusionPath[0]) },
		"a short node":             func(p *LogProof) { p.InclusionPath[0] = p.InclusionPath[0][2:] },
		"a node that is no hex":    func(p *LogProof) { p.InclusionPath[0] = strings.Repeat("g", 64) },
	} {
		wrong := good
		wrong.InclusionPath = slices.Clone(good.InclusionPath)
		change(&wrong)
		if VerifyInclusion(entry, wrong, root) == nil {
			t.Errorf("a proof with %s verifies, want it refused", what)
		}
	}
	for _, wrong := range []string{"", "sha256:" + root, root[:62], root + "00", root + "\n", zero, strings.ToUpper(root)} {
		if VerifyInclusion(entry, good, wrong) == nil {
			t.Errorf("a proof under the root %q verifies, want it refused", wrong)
		}
	}
}

func TestInputRootAndPathsAreThoseOfRFC6962(t *testing.T) {
	for n := 1; n <= 33; n++ {
		var leaves [][]byte
		for i := range n {
			leaves = append(leaves, fmt.Appendf(nil, "input %d", i))
		}
		root := InputRoot(leaves)
		var tree InputTree
		for _, leaf := range leaves {
			tree.Add(leaf[:3], leaf[3:])
		}
		if want := "sha256:" + hex.EncodeToString(treeHash(leaves)); root != want {
			t.Fatalf("root of %d leaves: %s, want %s", n, root, want)
		}
		for i, leaf := range leaves {
			path := tree.Path(i)
			if want := auditPath(i, leaves); !slices.Equal(path, want) {
				t.Fatalf("party %d of %d: %v, want %v", i, n, path, want)
			}
			if err := VerifyInput(leaf, i, n, path, root); err != nil {
				t.Fatalf("the input of party %d of %d does not verify: %v", i, n, err)
			}
			if VerifyInput([]byte("another"), i, n, path, root) == nil || n > 1 && VerifyInput(leaf, (i+1)%n, n, path, root) == nil {
				t.Fatalf("party %d of %d: another input or party verifies, want both refused", i, n)
			}
		}
	}
}

// SPEC 2.7: the message of a head is the canonical form of {tree_size, root_hash}.
func TestTreeHeadMessageIsCanonical(t *testing.T) {
	for _, size := range []int64{0, 1, 1 << 40, canon.MaxInt} {
		head := TreeHead{size, strings.Repeat("0a", 32), "es256:ab"}
		want := canon.Encode(map[string]any{"tree_size": size, "root_hash": head.RootHash})
		if got := head.Message(); string(got) != string(want) {
			t.Errorf("message %s, want %s", got, want)
		}
	}
}
