// Package verification checks a certificate without trusting the deployment, as far as the evidence
// allows: certificate, tree head and trusted keys, and perhaps the parties' inputs and the params.
//
// Certificates and bundles are JSON trees of package canon, because decoding into structs
// would hide unknown members.
package verification

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// Names of the checks, in report order.
const (
	Shape             = "shape"                 // the certificate has exactly the members of SPEC 2.5, each well-formed
	KeysUsable        = "keys"                  // at least one key is given, and every given key is usable
	Signature         = "signature"             // one of the keys signed the certificate (see Signed)
	TreeHeadSignature = "tree_head_signature"   // one of the keys signed the tree head
	KeyInForce        = "key_in_force"          // the certificate's key may sign a leaf at leaf_index; the tree head's key may sign a head of tree_size leaves
	TreeSize          = "tree_size"             // log_proof and the tree head have the same tree_size
	MerkleInclusion   = "merkle_inclusion"      // the SHA-256 of the bytes that `signature` covers is a leaf under the tree head
	InputRootForm     = "input_root_wellformed" // input_root is `sha256:` and 64 hex digits, or null if VOID (SPEC 2.9)
	Consistency       = "consistency"           // no member contradicts another; the checks Draw and Result examine the contents of `result`
	Draw              = "draw"                  // the winner follows from the beacon value and nonce_digest
	Commitments       = "commitments"           // each given input, with its salt, opens the party's commitment
	InputRoot         = "input_root"            // the root computed from the inputs and salts equals input_root
	Result            = "result"                // the recomputed result equals the certificate's, byte for byte
)

// Check is one line of a report. Detail says what is wrong or what was found. Detail may
// quote the certificate, whose texts come from strangers.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Report is a verdict. Valid is true if every check passed. Claims say what the checks prove.
type Report struct {
	Valid  bool    `json:"valid"`
	Checks []Check `json:"checks"`
	Claims []Claim `json:"claims,omitempty"` // of a certificate

	seen seen
	of   *certificate.Certificate // nil if malformed
}

// Known is what a verifier trusts and knows before it reads a certificate.
type Known struct {
	Keys    keys.List      // the deployment's keys; if nil, VerifyBundle uses the keys in the bundle
	Parties map[int]string // seat keys (the parties' own keys) by party index: es256:HEX or ed25519:HEX
	Openings
}

// Evidence is the input of Verify.
type Evidence struct {
	Known
	Certificate any
	TreeHead    any
	Issuer      string         // who named the keys, such as the URL of a deployment; "": the reader gave them
	Params      map[string]any // the deal's algorithm_params, which a certificate does not contain; nil if unknown

	// Seat verifies a seat signature; nil: Attestation.Verify does. A certificate can have 10,000 of them.
	Seat func(certificate.Attestation, certificate.Seat) error

	// Beacon asks for the check BeaconSignature under the key of drand quicknet, which takes milliseconds.
	Beacon bool
}

// Verify makes every check that the evidence allows. It does not panic on any input.
func Verify(e Evidence) Report {
	r := &Report{Valid: true, seen: seen{issuer: e.Issuer, alone: true}}
	if r.certificate(e); r.of != nil {
		r.open(e.Openings, e.Params)
		if e.Beacon {
			r.beaconSignature(nil, *r.of)
		}
	}
	r.judge()
	return *r
}

// certificate makes the checks that need no input. It sets r.of, unless the shape is wrong.
func (r *Report) certificate(e Evidence) {
	members, _ := e.Certificate.(map[string]any)
	misshapen := certificateShape(e.Certificate)
	r.add(Shape, prefixed("the certificate ", misshapen), "")
	r.keys(e.Keys)

	signed := Signed(members)
	signer := r.signed(Signature, e.Keys, signed, members["signature"])

	var headSigner *keys.Key
	head, badHead := readHead(e.TreeHead)
	if badHead != "" {
		r.add(TreeHeadSignature, "the tree head "+badHead, "")
	} else {
		headSigner = r.signed(TreeHeadSignature, e.Keys, head.Message(), head.Signature)
	}
	if misshapen != "" {
		for _, name := range []string{KeyInForce, TreeSize, MerkleInclusion, InputRootForm, Consistency} {
			r.add(name, "not checked, because the shape is wrong", "")
		}
		return
	}
	var c certificate.Certificate
	if err := json.Unmarshal(canon.Encode(e.Certificate), &c); err != nil {
		r.add(Consistency, "unreadable: "+err.Error(), "") // unreachable: the shape was checked
		return
	}
	r.of = &c
	r.inForce(signer, headSigner, c.LogProof.LeafIndex, head.TreeSize)
	r.seen.development = signer != nil && signer.Development
	r.inclusion(c.LogProof, sha256.Sum256(signed), head, badHead)
	root := "null, VOID"
	if c.InputRoot != nil {
		root = *c.InputRoot
	}
	r.hold(InputRootForm, c.InputRootWellFormed(), "input_root is malformed, or is null in a COMPUTED certificate; it must be `sha256:` and 64 lower-case hex digits", root)
	r.add(Consistency, contradictions(c.Payload), "")
	if a, _ := algorithm.Lookup(c.Algorithm); c.Outcome == certificate.Computed && a.Redraws() {
		r.add(Draw, drawProblem(a, c.Payload), "recomputed from the beacon value and nonce_digest")
	}
	r.seats(c.Payload, e.Parties, e.Seat)
}

// Issuer returns how far the issuer of the certificate is proven.
func (r Report) Issuer() Status { return r.Claims[0].Status }

// Signed returns the bytes that a certificate's signature covers: the RFC 8785 form of
// the certificate without signature and log_proof (SPEC 2.5).
func Signed(certificate map[string]any) []byte {
	payload := map[string]any{}
	for name, v := range certificate {
		if name != "signature" && name != "log_proof" {
			payload[name] = v
		}
	}
	return canon.Encode(payload)
}

// Holds reports whether the check with this name was made and passed.
func (r Report) Holds(name string) bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == name && c.OK })
}

func (r *Report) Add(c Check) {
	r.Checks = append(r.Checks, c)
	r.Valid = r.Valid && c.OK
}

// add appends a check, which passed if `wrong` is empty. `good` is the Detail of a passed check.
func (r *Report) add(name, wrong, good string) {
	r.hold(name, wrong == "", wrong, good)
}

func (r *Report) hold(name string, ok bool, wrong, good string) {
	if ok {
		wrong = good
	}
	r.Add(Check{name, ok, wrong})
}

func (r *Report) keys(trusted keys.List) {
	for _, k := range trusted {
		if wrong := k.Problem(); wrong != nil {
			r.add(KeysUsable, fmt.Sprintf("%.80s: %v", k.Label, wrong), "")
			return
		}
	}
	r.hold(KeysUsable, len(trusted) > 0, "no key to verify with", "")
}

// signed adds the check that one of the keys made the signature (SPEC 5.6). It returns
// that key, or nil.
func (r *Report) signed(name string, trusted keys.List, message []byte, signature any) *keys.Key {
	text, ok := signature.(string)
	if !ok || !signatureForm.MatchString(text) {
		r.add(name, "the signature is malformed; it must be `es256:` or `ed25519:`, followed by 128 lower-case hex digits", "")
		return nil
	}
	for i, k := range trusted {
		if k.Verify(message, text) == nil {
			r.add(name, "", fmt.Sprintf("key %d of %d, %s", i+1, len(trusted), k.Label))
			return &trusted[i]
		}
	}
	r.add(name, fmt.Sprintf("the signature does not verify under any of the %d keys (an es256 signature must be low-S)", len(trusted)), "")
	return nil
}

func (r *Report) inclusion(proof certificate.LogProof, entry [32]byte, head certificate.TreeHead, badHead string) {
	if badHead != "" {
		r.add(TreeSize, "no usable tree head", "")
		r.add(MerkleInclusion, "no usable tree head", "")
		return
	}
	r.hold(TreeSize, proof.TreeSize == head.TreeSize,
		fmt.Sprintf("log_proof has tree_size %d, but the tree head has %d", proof.TreeSize, head.TreeSize), fmt.Sprint(head.TreeSize))
	err := certificate.VerifyInclusion(entry, proof, head.RootHash)
	r.hold(MerkleInclusion, err == nil, "leaf_index and inclusion_path do not lead to root_hash",
		fmt.Sprintf("leaf %d of %d", proof.LeafIndex, proof.TreeSize))
}

func prefixed(prefix, wrong string) string {
	if wrong == "" {
		return ""
	}
	return prefix + wrong
}

func standing(k keys.Key) string {
	switch {
	case k.State == "":
		return "a key given without its state"
	case k.State != keys.Retired:
		return "the " + k.State + " key"
	case k.TreeSize == nil:
		return "a retired key without tree_size"
	}
	return fmt.Sprintf("a key retired at tree size %d", *k.TreeSize)
}

// inForce adds the check KeyInForce: `cert` may sign the leaf at leafIndex, and `head` the last leaf
// under the tree head. Each is nil if no trusted key made that signature.
func (r *Report) inForce(cert, head *keys.Key, leafIndex, headSize int64) {
	switch {
	case cert == nil:
		r.add(KeyInForce, "not checked, because no trusted key signed the certificate", "")
	case head == nil:
		r.add(KeyInForce, "not checked, because no trusted key signed the tree head", "")
	case !cert.MaySignLeaf(leafIndex):
		r.add(KeyInForce, fmt.Sprintf("the key of the certificate retired at tree size %d, so it must not sign leaf %d: somebody used the key after it retired", *cert.TreeSize, leafIndex), "")
	case !head.MaySignLeaf(headSize - 1):
		r.add(KeyInForce, fmt.Sprintf("the key of the tree head retired at tree size %d, so it must not sign a head of size %d: somebody used the key after it retired", *head.TreeSize, headSize), "")
	default:
		good := "certificate: " + standing(*cert)
		if cert.Label != head.Label {
			good += "; tree head: " + standing(*head)
		}
		r.add(KeyInForce, "", good)
	}
}

// VerifyTreeHead returns the key that signed a tree head (SPEC 2.7) and may sign one of this size, or
// what is wrong.
func VerifyTreeHead(document any, trusted keys.List) (by keys.Key, wrong string) {
	head, bad := readHead(document)
	if bad != "" {
		return by, bad
	}
	r := &Report{}
	signer := r.signed(TreeHeadSignature, trusted, head.Message(), head.Signature)
	if signer == nil {
		return by, r.Checks[0].Detail
	}
	if !signer.MaySignLeaf(head.TreeSize - 1) {
		return by, fmt.Sprintf("the signing key retired at tree size %d, so it must not sign a head of size %d: somebody used the key after it retired", *signer.TreeSize, head.TreeSize)
	}
	return *signer, ""
}
