package main

import (
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/translog"
)

// verifyCertificate checks the signature, deal, outcome and input root of a certificate, and
// returns the cert_id. It computes the tree root from the inclusion path and notes the root in
// heads. [heads.fetchAll] later compares the root with the signed head.
func verifyCertificate(text []byte, key keys.Key, heads *heads, dealID, inputRoot string) (certID string, err error) {
	members, err := canon.ParseObject(text)
	if err != nil {
		return "", err
	}
	signature, _ := members["signature"].(string)
	logProof, _ := members["log_proof"].(map[string]any)
	delete(members, "signature")
	delete(members, "log_proof")
	signed := canon.Encode(members)
	if err := key.Verify(signed, signature); err != nil {
		return "", err
	}
	if members["deal_id"] != dealID || members["outcome"] != certificate.Computed || members["input_root"] != inputRoot {
		return "", fmt.Errorf("the certificate has deal %v, outcome %v and input root %v, want deal %s, outcome %s and input root %s",
			members["deal_id"], members["outcome"], members["input_root"], dealID, certificate.Computed, inputRoot)
	}
	size, root, err := rootOf(certificate.Entry(signed), logProof)
	if err != nil {
		return "", err
	}
	certID, _ = members["cert_id"].(string)
	return certID, heads.note(size, root)
}

func rootOf(entry [32]byte, logProof map[string]any) (size int64, root string, err error) {
	size, _ = logProof["tree_size"].(int64)
	index, _ := logProof["leaf_index"].(int64)
	list, _ := logProof["inclusion_path"].([]any)
	path := make([][]byte, len(list))
	for i, node := range list {
		text, _ := node.(string)
		if path[i], err = hex.DecodeString(text); err != nil {
			return 0, "", err
		}
	}
	hash, err := proof.RootFromInclusionProof(rfc6962.DefaultHasher, uint64(index), uint64(size), rfc6962.DefaultHasher.HashLeaf(entry[:]), path)
	if err != nil {
		return 0, "", fmt.Errorf("inclusion path of leaf %d in a tree of size %d: %w", index, size, err)
	}
	return size, hex.EncodeToString(hash), nil
}

// heads records the root of each tree size, from inclusion paths and from signed heads.
type heads struct {
	mu    sync.Mutex
	roots map[int64]string
	good  map[int64]bool // sizes whose signed head is verified
}

func newHeads() *heads { return &heads{roots: map[int64]string{}, good: map[int64]bool{}} }

func (h *heads) note(size int64, root string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seen, found := h.roots[size]; found && seen != root {
		return fmt.Errorf("tree size %d has two roots: %s and %s", size, seen, root)
	}
	h.roots[size] = root
	return nil
}

// verifyHead notes the root of a signed head and verifies the signature. It skips the signature
// if a head of the same size is already verified.
func (h *heads) verifyHead(head translog.TreeHead, key keys.Key) error {
	if err := h.note(head.TreeSize, head.RootHash); err != nil {
		return err
	}
	h.mu.Lock()
	good := h.good[head.TreeSize]
	h.mu.Unlock()
	if good {
		return nil
	}
	if err := key.Verify(head.Message(), head.Signature); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good[head.TreeSize] = true
	return nil
}

func (h *heads) fetchAll(c *client, key keys.Key) error {
	var sizes []int64
	h.mu.Lock()
	for size := range h.roots {
		if !h.good[size] {
			sizes = append(sizes, size)
		}
	}
	h.mu.Unlock()
	for _, size := range sizes {
		var head translog.TreeHead
		if _, err := c.call(200, "GET", fmt.Sprintf("/v1/log/tree-head?tree_size=%d", size), "", nil, &head); err != nil {
			return err
		}
		if head.TreeSize != size {
			return fmt.Errorf("asked for the head of size %d, got the head of size %d", size, head.TreeSize)
		}
		if err := h.verifyHead(head, key); err != nil {
			return err
		}
	}
	return nil
}
