package translog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/transparency-dev/merkle/rfc6962"
)

var hasher = rfc6962.DefaultHasher

// TreeHead is a published head. SPEC 2.7: tree_size, root_hash (64 lower-case
// hex digits), signature (`<scheme>:<hex>` by the deployment key).
type TreeHead struct {
	TreeSize  int64  `json:"tree_size"`
	RootHash  string `json:"root_hash"`
	Signature string `json:"signature"`
}

// Message is what the signature is over.
// SPEC 2.7: the canonical JSON (RFC 8785) of the object {tree_size, root_hash}.
func (h TreeHead) Message() []byte {
	// RFC 8785 3.2.3: members sorted by name. A hash in hex needs no escapes and
	// a size is an integer below 2^53, so encoding/json writes the same bytes.
	message, err := json.Marshal(struct {
		RootHash string `json:"root_hash"`
		TreeSize int64  `json:"tree_size"`
	}{h.RootHash, h.TreeSize})
	if err != nil {
		panic(err) // two plain members
	}
	return message
}

// Digest is SHA-256 of the message: what the signer is given, and what the log
// never admits as an entry.
func (h TreeHead) Digest() [32]byte { return sha256.Sum256(h.Message()) }

// checkShape returns an error where this cannot be a head, whoever signed it.
func (h TreeHead) checkShape() error {
	if h.TreeSize < 0 || h.TreeSize > maxSize {
		return fmt.Errorf("tree_size %d is out of range", h.TreeSize)
	}
	if _, err := parseHash(h.RootHash); err != nil {
		return fmt.Errorf("root_hash: %w", err)
	}
	if h.Signature == "" {
		return fmt.Errorf("signature is empty")
	}
	return nil
}

// maxSize bounds sizes and indexes on the wire: integers that every JSON reader
// holds exactly (RFC 7493 2.2).
const maxSize = 1<<53 - 1

// root is a head before it is signed.
type root struct {
	size int64
	hash []byte
}

var emptyRoot = root{size: 0, hash: hasher.EmptyRoot()}

func (r root) head(signature string) TreeHead {
	return TreeHead{TreeSize: r.size, RootHash: hex.EncodeToString(r.hash), Signature: signature}
}

func (r root) same(other root) bool { return r.size == other.size && bytes.Equal(r.hash, other.hash) }

// root returns the tree of a head that passed checkShape or came from the
// database. Any other hash is that of no tree.
func (h TreeHead) root() root {
	hash, _ := parseHash(h.RootHash)
	return root{size: h.TreeSize, hash: hash[:]}
}

// parseHash reads 64 lower-case hex digits.
func parseHash(s string) (hash [32]byte, err error) {
	if len(s) != 64 {
		return hash, fmt.Errorf("%d characters where 64 lower-case hex digits belong", len(s))
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return hash, fmt.Errorf("character %d is no lower-case hex digit", i)
		}
	}
	_, err = hex.Decode(hash[:], []byte(s))
	return hash, err
}
