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
	// For a hash in hex and an integer below 2^53, encoding/json writes the canonical
	// bytes if the members are in the order of their names. Unlike canon.Encode it does
	// not panic on a larger integer, which a damaged database or a file may have.
	message, err := json.Marshal(struct {
		RootHash string `json:"root_hash"`
		TreeSize int64  `json:"tree_size"`
	}{h.RootHash, h.TreeSize})
	if err != nil {
		panic(err) // encoding a string and an integer never fails
	}
	return message
}

// Digest returns the SHA-256 hash of Message. The signer signs it, and the log
// never admits it as an entry.
func (h TreeHead) Digest() [32]byte { return sha256.Sum256(h.Message()) }
