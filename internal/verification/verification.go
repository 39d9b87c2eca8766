// Package verification checks a certificate as a stranger would, from what it
// is given and nothing else: the certificate, a signed tree head, the keys that
// the reader trusts and, where they are known, the inputs and the deal's params.
// It is pure, so that a verdict is the same wherever it is made.
//
// What it takes are trees of package canon, since what is verified is what was
// written, unknown members included.
package verification

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
)

// The names of the checks, in the order of a report. The last three are made
// only where inputs are given (and Result only with params), Draw only for a
// COMPUTED certificate that shows what its result was drawn from (random.v1).
const (
	Shape             = "shape"                 // the members of SPEC 2.5 and no others, each of its form
	KeysUsable        = "keys"                  // there are keys, and each is one
	Signature         = "signature"             // under one of the keys, over the signing bytes
	TreeHeadSignature = "tree_head_signature"   // under one of the keys
	KeyInForce        = "key_in_force"          // those keys may hold this leaf and a tree of this size
	TreeSize          = "tree_size"             // the proof and the tree head are of one size
	MerkleInclusion   = "merkle_inclusion"      // the certificate's entry is in the tree
	InputRootForm     = "input_root_wellformed" // SPEC 2.9
	Consistency       = "consistency"           // nothing in it contradicts anything else in it
	Draw              = "draw"                  // the winner follows from the beacon value and nonce_digest
	Commitments       = "commitments"           // each given input and salt opens its commitment
	InputRoot         = "input_root"            // the root over the openings is the certificate's
	Result            = "result"                // recomputed, byte for byte
)

// Check is one line of a report. Detail says what is wrong, or what was found;
// it may quote the certificate, which comes from strangers.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Report is a verdict. Valid is true where every check holds. Notes say what was
// not checked.
type Report struct {
	Valid  bool     `json:"valid"`
	Checks []Check  `json:"checks"`
	Notes  []string `json:"notes,omitempty"`
}

// Key is a public key that the reader trusts. Verify checks a signature of a
// message; a label that is no key has Problem instead.
type Key struct {
	Trusted
	Verify  func(message []byte, signature string) error
	Problem error
}

// Evidence is what a verification is made from.
type Evidence struct {
	Certificate any
	TreeHead    any
	Keys        []Key

	Inputs any            // nil: unknown. An array in party order of {input, salt}, or null for one that is unknown
	Params map[string]any // nil: unknown. The deal's algorithm_params, which no certificate holds

	Parties map[int]string        // by party index: the seat key that the reader knows to be the party's, es256:HEX or ed25519:HEX
	Open    func([]Trusted) []Key // makes keys that verify; nil: signatures of seat keys are not checked, which fails
}

// Verify makes every check that the evidence allows. It does not panic,
// whatever the trees hold.
func Verify(e Evidence) Report {
	r, c := verify(e)
	if c != nil {
		r.undeclared(c.Payload, "a bundle holds the declaration, a certificate alone does not")
	}
	return r
}

// verify is Verify without a word on the declaration. The certificate is nil where
// its shape is wrong.
func verify(e Evidence) (Report, *certificate.Certificate) {
	r := &Report{Valid: true}
	members, _ := e.Certificate.(map[string]any)
	misshapen := certificateShape(e.Certificate)
	r.add(Shape, prefixed("the certificate ", misshapen), "")
	r.keys(e.Keys)

	signed := Signed(members)
	signer := r.signed(Signature, e.Keys, signed, members["signature"])

	var headSigner *Key
	head, badHead := readHead(e.TreeHead)
	if badHead != "" {
		r.add(TreeHeadSignature, "the tree head "+badHead, "")
	} else {
		headSigner = r.signed(TreeHeadSignature, e.Keys, headMessage(head), head.signature)
	}
	if misshapen != "" {
		for _, name := range []string{KeyInForce, TreeSize, MerkleInclusion, InputRootForm, Consistency} {
			r.add(name, "not checked, because the shape is wrong", "")
		}
		return *r, nil
	}
	var c certificate.Certificate
	if err := json.Unmarshal(canon.Encode(e.Certificate), &c); err != nil {
		r.add(Consistency, "unreadable: "+err.Error(), "") // the shape leaves no way to get here
		return *r, nil
	}
	r.inForce(signer, headSigner, c.LogProof.LeafIndex, head.size)
	r.inclusion(c.LogProof, sha256.Sum256(signed), head, badHead)
	root := "null, VOID"
	if c.InputRoot != nil {
		root = *c.InputRoot
	}
	r.hold(InputRootForm, c.InputRootWellFormed(), "input_root is missing from a COMPUTED certificate, or is not sha256: and 64 lower-case hex digits", root)
	r.add(Consistency, contradictions(c.Payload), "")
	if a, _ := algorithm.Lookup(c.Algorithm); c.Outcome == certificate.Computed && a.Redraws() {
		r.add(Draw, drawProblem(a, c.Payload), "recomputed from the beacon value and nonce_digest")
	}
	r.seats(c.Payload, e.Parties, e.Open)
	if e.Inputs != nil {
		r.inputs(c.Payload, e.Inputs, e.Params)
	}
	return *r, &c
}

// Signed returns the bytes of a certificate that its signature is over.
// SPEC 2.5: the canonical JSON form of the certificate without signature and log_proof.
func Signed(certificate map[string]any) []byte {
	payload := map[string]any{}
	for name, v := range certificate {
		if name != "signature" && name != "log_proof" {
			payload[name] = v
		}
	}
	return canon.Encode(payload)
}

// Holds reports whether the check of that name was made and holds.
func (r Report) Holds(name string) bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == name && c.OK })
}

// Add appends a check that was made elsewhere.
func (r *Report) Add(c Check) {
	r.Checks = append(r.Checks, c)
	r.Valid = r.Valid && c.OK
}

// add notes a check: problem is what is wrong, empty where it holds.
func (r *Report) add(name, problem, good string) {
	r.hold(name, problem == "", problem, good)
}

func (r *Report) hold(name string, ok bool, problem, good string) {
	if ok {
		problem = good
	}
	r.Add(Check{name, ok, problem})
}

func (r *Report) keys(keys []Key) {
	for _, k := range keys {
		if k.Problem != nil {
			r.add(KeysUsable, fmt.Sprintf("%.80s: %v", k.Label, k.Problem), "")
			return
		}
	}
	r.hold(KeysUsable, len(keys) > 0, "no key to verify with", "")
}

// signed checks a signature under any of the keys (SPEC 5.6) and gives the first
// that made it, nil where none did.
func (r *Report) signed(name string, keys []Key, message []byte, signature any) *Key {
	text, ok := signature.(string)
	if !ok || !signatureForm.MatchString(text) {
		r.add(name, "the signature is not es256: or ed25519: and 128 lower-case hex digits", "")
		return nil
	}
	for i, k := range keys {
		if k.Problem == nil && k.Verify(message, text) == nil {
			r.add(name, "", fmt.Sprintf("key %d of %d, %s", i+1, len(keys), k.Label))
			return &keys[i]
		}
	}
	r.add(name, fmt.Sprintf("the signature holds under none of the %d keys (es256 must be low-S)", len(keys)), "")
	return nil
}

func (r *Report) inclusion(proof certificate.LogProof, entry [32]byte, head treeHead, badHead string) {
	if badHead != "" {
		r.add(TreeSize, "no usable tree head", "")
		r.add(MerkleInclusion, "no usable tree head", "")
		return
	}
	r.hold(TreeSize, proof.TreeSize == head.size,
		fmt.Sprintf("the proof is for size %d, the tree head for %d", proof.TreeSize, head.size), fmt.Sprint(head.size))
	err := certificate.VerifyInclusion(entry, proof, head.root)
	r.hold(MerkleInclusion, err == nil, "leaf_index and inclusion_path do not lead to root_hash",
		fmt.Sprintf("leaf %d of %d", proof.LeafIndex, proof.TreeSize))
}

func prefixed(prefix, problem string) string {
	if problem == "" {
		return ""
	}
	return prefix + problem
}
