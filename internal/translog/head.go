package translog

import (
	"bytes"
	"encoding/hex"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

var hasher = rfc6962.DefaultHasher

// TreeHead is a published head, in the form that verifiers of certificates use.
type TreeHead = certificate.TreeHead

// root is an unsigned head: the size and root hash of a tree.
type root struct {
	size int64
	hash []byte
}

var emptyRoot = root{size: 0, hash: hasher.EmptyRoot()}

func (r root) head(signature string) TreeHead {
	return TreeHead{TreeSize: r.size, RootHash: hex.EncodeToString(r.hash), Signature: signature}
}

func (r root) same(other root) bool { return r.size == other.size && bytes.Equal(r.hash, other.hash) }

// treeOf returns the size and root hash of a head. A malformed root hash becomes the zero hash,
// which is the root of no tree.
func treeOf(h TreeHead) root {
	hash, _ := canon.ParseHash(h.RootHash)
	return root{size: h.TreeSize, hash: hash[:]}
}
