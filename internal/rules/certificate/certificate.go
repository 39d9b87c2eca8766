// Package certificate defines outcome certificates: their members, the signed bytes, the log entry,
// the input root, the inclusion proofs and the tree head of the log (certificate.go), and how a
// party signs its commitment with a seat key (seat.go).
package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// Version is the version of the certificate format (SPEC 9.3).
const Version = "1"

// Computed and Void are the outcomes that a certificate can have (SPEC 2.5).
const (
	Computed = "COMPUTED"
	Void     = "VOID"
)

// Payload is the signed part of a certificate: all members except signature and
// log_proof (SPEC 2.5). Times are in unix seconds. Unused nullable members are null.
type Payload struct {
	CertVersion    string          `json:"cert_version"`
	CertID         string          `json:"cert_id"`
	DealID         string          `json:"deal_id"`
	Outcome        string          `json:"outcome"`
	Algorithm      string          `json:"algorithm"`
	Mode           string          `json:"mode"`
	Retention      string          `json:"retention"`
	Parties        []Party         `json:"parties"`
	InputRoot      *string         `json:"input_root"`
	Result         json.RawMessage `json:"result"`
	VoidFlakers    []int           `json:"void_flakers"`
	Properties     []string        `json:"properties"`
	Timing         Timing          `json:"timing"`
	TEEAttestation json.RawMessage `json:"tee_attestation"` // SPEC 2.5: reserved, always null
}

// Party is an element of `parties`.
type Party struct {
	Index      int     `json:"index"`
	Label      string  `json:"label"`
	Commitment *string `json:"commitment"`
	AttestedBy string  `json:"attested_by"`
}

// MissedCommit, MissedReveal and Rejected are the flags that say why a certificate is VOID.
const (
	MissedCommit = "void:missed-commit"
	MissedReveal = "void:missed-reveal"
	Rejected     = "void:rejected"
)

// Timing contains the deal's times in unix seconds. A time is null if the deal ended before the last
// party had committed or revealed, or without a result.
type Timing struct {
	CreatedAt       int64  `json:"created_at"`
	CommitsClosedAt *int64 `json:"commits_closed_at"`
	RevealsClosedAt *int64 `json:"reveals_closed_at"`
	ComputedAt      *int64 `json:"computed_at"`
}

// LogProof is an inclusion proof against a published tree head. InclusionPath goes from the leaf up
// (RFC 6962 2.1.1), in 64 lower-case hex digits each.
type LogProof struct {
	TreeSize      int64    `json:"tree_size"`
	LeafIndex     int64    `json:"leaf_index"`
	InclusionPath []string `json:"inclusion_path"`
}

// Certificate is a payload with its signature and its inclusion proof in the log.
type Certificate struct {
	Payload
	LogProof  LogProof `json:"log_proof"`
	Signature string   `json:"signature"`
}

// SigningBytes returns the RFC 8785 form of the payload (SPEC 2.5), whose SHA-256 is both the signed
// digest and the log entry.
func (p Payload) SigningBytes() ([]byte, error) { return canon.Marshal(p) }

func Parse(signingBytes []byte) (Payload, error) {
	var p Payload
	if err := json.Unmarshal(signingBytes, &p); err != nil {
		return Payload{}, fmt.Errorf("cannot parse the certificate payload: %w", err)
	}
	return p, nil
}

// Entry returns the log entry of a certificate: the SHA-256 of its signing bytes.
func Entry(signingBytes []byte) [32]byte { return sha256.Sum256(signingBytes) }

// Tag returns the tag of a deal's log entry. The log accepts at most one entry for each tag. The tag
// tells nothing about the deal to a reader who does not know its id.
func Tag(dealID string) [32]byte { return sha256.Sum256([]byte("fairpact deal\x00" + dealID)) }

// Facts determine the properties of a certificate.
type Facts struct {
	Algorithm   string
	Retention   string
	Void        string // MissedCommit, MissedReveal or Rejected; "" if the outcome is COMPUTED
	Revealed    bool   // at least one party has revealed
	Declaration string // digest of the declaration, from DeclarationDigest
	SealRound   int64  // the beacon round that opened at least one input; 0: none
	Organised   bool   // the deal declares that the initiator acts for all parties (deal.ActedByInitiator)
}

// InputsPurged is the property of a certificate whose deal deleted its inputs in the transaction that ended it (retention purge).
const InputsPurged = "inputs-purged"

// ActedByInitiator is the property of a certificate whose deal declares that the initiator acts for all parties.
const ActedByInitiator = "acted-by-initiator"

// OpenedByTimelock begins the property of a certificate with inputs that came from timelock seals. The
// number of the beacon round follows.
const OpenedByTimelock = "opened-by-timelock:"

// OpenedBySeal reports whether at least one input came from a timelock seal.
func OpenedBySeal(properties []string) bool {
	return slices.ContainsFunc(properties, func(p string) bool { return strings.HasPrefix(p, OpenedByTimelock) })
}

func Properties(f Facts) (flags []string) {
	if f.Revealed {
		flags = append(flags, "inputs-committed-before-reveal")
	}
	if f.Void == "" {
		flags = append(flags, "deterministic-recomputable")
		if a, ok := algorithm.Lookup(f.Algorithm); ok {
			flags = append(flags, a.Properties...)
		}
	} else {
		flags = append(flags, f.Void)
	}
	if f.SealRound > 0 {
		flags = append(flags, fmt.Sprintf("%s%d", OpenedByTimelock, f.SealRound))
	}
	if f.Organised {
		flags = append(flags, ActedByInitiator)
	}
	if f.Retention == "purge" && f.Revealed {
		flags = append(flags, InputsPurged)
	}
	return append(flags, DeclarationProperty(f.Declaration), "logged")
}

// InputRoot returns the input_root of the leaves, each of which is the input and the salt of a party.
func InputRoot(leaves [][]byte) string {
	var t InputTree
	for _, leaf := range leaves {
		t.Add(leaf, nil)
	}
	return t.Root()
}

// InputTree collects the leaves under an input_root, without their texts. The zero value is empty.
type InputTree struct{ hashes [][]byte }

// Add adds the leaf of the next party: its input in RFC 8785 form, and the salt bytes.
func (t *InputTree) Add(input, salt []byte) {
	t.hashes = append(t.hashes, rfc6962.DefaultHasher.HashLeaf(slices.Concat(input, salt)))
}

// Root returns the input_root of the leaves.
func (t *InputTree) Root() string {
	tree := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	for _, hash := range t.hashes {
		// Append returns an error only for a corrupted range.
		_ = tree.Append(hash, nil)
	}
	root, _ := tree.GetRootHash(nil)
	if root == nil {
		root = rfc6962.DefaultHasher.EmptyRoot()
	}
	return "sha256:" + hex.EncodeToString(root)
}

// Path returns the inclusion path of a party's leaf under Root, in the form of LogProof.
func (t *InputTree) Path(party int) []string {
	level := t.hashes
	path := []string{}
	for ; len(level) > 1; party /= 2 {
		if sibling := party ^ 1; sibling < len(level) {
			path = append(path, hex.EncodeToString(level[sibling]))
		}
		var above [][]byte
		for i := 0; i+1 < len(level); i += 2 {
			above = append(above, rfc6962.DefaultHasher.HashChildren(level[i], level[i+1]))
		}
		if len(level)%2 == 1 {
			above = append(above, level[len(level)-1])
		}
		level = above
	}
	return path
}

// VerifyInput checks the inclusion path of a party's leaf under inputRoot.
func VerifyInput(leaf []byte, party, parties int, path []string, inputRoot string) error {
	return verifyPath(leaf, LogProof{TreeSize: int64(parties), LeafIndex: int64(party), InclusionPath: path}, strings.TrimPrefix(inputRoot, "sha256:"))
}

var rootForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// InputRootWellFormed reports whether input_root is `sha256:` and 64 lower-case hex digits
// (SPEC 2.9). In a VOID certificate, null is well-formed too.
func (p Payload) InputRootWellFormed() bool {
	if p.InputRoot == nil {
		return p.Outcome == Void
	}
	return rootForm.MatchString(*p.InputRoot)
}

// VerifyInclusion checks that the log entry is a leaf under the root (RFC 9162 2.1.3.2).
func VerifyInclusion(entry [32]byte, lp LogProof, rootHash string) error {
	return verifyPath(entry[:], lp, rootHash)
}

func verifyPath(data []byte, lp LogProof, rootHash string) error {
	if lp.LeafIndex < 0 || lp.TreeSize <= lp.LeafIndex {
		return fmt.Errorf("leaf %d is not in a tree of %d leaves", lp.LeafIndex, lp.TreeSize)
	}
	root, err := canon.ParseHex(rootHash, 32)
	if err != nil {
		return fmt.Errorf("root_hash has %w", err)
	}
	path := make([][]byte, len(lp.InclusionPath))
	for i, node := range lp.InclusionPath {
		if path[i], err = canon.ParseHex(node, 32); err != nil {
			return fmt.Errorf("inclusion_path[%d] has %w", i, err)
		}
	}
	return proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(lp.LeafIndex), uint64(lp.TreeSize),
		rfc6962.DefaultHasher.HashLeaf(data), path, root)
}

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
