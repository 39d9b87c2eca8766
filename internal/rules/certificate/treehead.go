package certificate

import (
	"crypto/sha256"
	"encoding/json"
)

// TreeHead is a published head of the transparency log (SPEC 2.7).
type TreeHead struct {
	TreeSize  int64  `json:"tree_size"`
	RootHash  string `json:"root_hash"` // 64 lower-case hex digits
	Signature string `json:"signature"` // `<scheme>:<hex>` by the deployment key, over Message
}

// Message returns the signed bytes: the RFC 8785 form of {tree_size, root_hash} (SPEC
// 2.7).
func (h TreeHead) Message() []byte {
	// encoding/json writes the canonical bytes here, because the struct lists its members
	// in the order of their names. canon.Encode would panic on a size beyond 2^53−1, which a
	// damaged file may have.
	message, err := json.Marshal(struct {
		RootHash string `json:"root_hash"`
		TreeSize int64  `json:"tree_size"`
	}{h.RootHash, h.TreeSize})
	if err != nil {
		panic(err) // encoding a string and an integer never fails
	}
	return message
}

// Digest returns the SHA-256 hash of Message. The deployment key signs this digest. The
// log refuses this digest as an entry, because the head's signature would also be a valid
// signature of that entry.
func (h TreeHead) Digest() [32]byte { return sha256.Sum256(h.Message()) }
