package verification

import "fmt"

// States of a key in the answer of GET /v1/pubkeys.
const (
	Current = "current" // signs now, or begins to sign within 5 minutes
	Next    = "next"    // published in advance; will sign later
	Retired = "retired" // replaced, or will be within 5 minutes; signatures stay valid, but see Trusted.TreeSize
)

// mostKeys is the most keys that a deployment may publish. The limit bounds the time of a
// verification.
const mostKeys = 1000

// Trusted is a public key, with the facts that GET /v1/pubkeys or GET /v1/status publishes about it.
type Trusted struct {
	Label     string
	State     string // Current, Next or Retired; "" if unknown
	RetiredAt *int64 // unix seconds at which a retired key was replaced; nil if unknown
	TreeSize  *int64 // a retired key may sign only leaves below this index; nil if there is no such bound

	Development bool // whether GET /v1/status declares this key a development key; GET /v1/pubkeys does not say
}

const developmentKey = "who issued the certificate: the deployment declares the signing key a development key, and certificates by such a key prove nothing"

// maySignLeaf reports whether the key was allowed to sign a leaf at this index.
func (t Trusted) maySignLeaf(leafIndex int64) bool {
	return t.State != Retired || t.TreeSize == nil || leafIndex < *t.TreeSize
}

func (t Trusted) standing() string {
	switch {
	case t.State == "":
		return "a key given without its state"
	case t.State != Retired:
		return "the " + t.State + " key"
	case t.TreeSize == nil:
		return "a retired key without tree_size"
	}
	return fmt.Sprintf("a key retired at tree size %d", *t.TreeSize)
}

var (
	state = oneOf(Current, Next, Retired)

	keySetShape = record(map[string]rule{"keys": arrayUpTo(mostKeys, record(map[string]rule{
		"pubkey": text, "state": state, "retired_at?": integer, "tree_size?": integer,
	}))})

	legacyShape = arrayUpTo(mostKeys-1, text)
)

// ReadKeys returns the keys in an answer of GET /v1/pubkeys or of GET /v1/status (SPEC 2.8),
// in the order of the answer. Only GET /v1/pubkeys says what each key may sign. If `document`
// has the form of neither answer, `problem` says what is wrong. ReadKeys does not check labels;
// the check KeysUsable does.
func ReadKeys(document any) (keys []Trusted, problem string) {
	members, ok := document.(map[string]any)
	if !ok {
		return nil, "is not an object"
	}
	if _, set := members["keys"]; set {
		return readKeySet(document)
	}
	current, there := members["pubkey"]
	if !there {
		return nil, "has neither `keys` (GET /v1/pubkeys) nor `pubkey` (GET /v1/status)"
	}
	if wrong := text(current); wrong != "" {
		return nil, "`pubkey` " + wrong
	}
	if wrong := legacyShape(members["legacy_pubkeys"]); wrong != "" {
		return nil, "`legacy_pubkeys` " + wrong
	}
	keys = []Trusted{{Label: current.(string), Development: members["dev_ephemeral_key"] == true}}
	for _, label := range members["legacy_pubkeys"].([]any) {
		keys = append(keys, Trusted{Label: label.(string)})
	}
	return keys, ""
}

func readKeySet(document any) (keys []Trusted, problem string) {
	if wrong := keySetShape(document); wrong != "" {
		return nil, wrong
	}
	current, labels := 0, map[string]bool{}
	for i, row := range document.(map[string]any)["keys"].([]any) {
		members := row.(map[string]any)
		k := Trusted{Label: members["pubkey"].(string), State: members["state"].(string), RetiredAt: optional(members["retired_at"]), TreeSize: optional(members["tree_size"])}
		if k.State != Retired && (k.RetiredAt != nil || k.TreeSize != nil) {
			return nil, fmt.Sprintf("`keys` [%d] is %s, but only a retired key may have `retired_at` or `tree_size`", i, k.State)
		}
		if labels[k.Label] {
			return nil, fmt.Sprintf("`keys` [%d] repeats a key", i)
		}
		labels[k.Label] = true
		if k.State == Current {
			current++
		}
		keys = append(keys, k)
	}
	if current != 1 {
		return nil, fmt.Sprintf("has %d current keys instead of one", current)
	}
	return keys, ""
}

func optional(v any) *int64 {
	if n, ok := v.(int64); ok {
		return &n
	}
	return nil
}

// inForce adds the check KeyInForce. `cert` is the key that signed the certificate. It must
// have been allowed to sign the leaf at leafIndex. `head` is the key that signed the tree head.
// It must have been allowed to sign leaf headSize-1, which is the last leaf under the tree head.
// `cert` or `head` is nil if no trusted key made that signature.
func (r *Report) inForce(cert, head *Key, leafIndex, headSize int64) {
	switch {
	case cert == nil:
		r.add(KeyInForce, "not checked, because no trusted key signed the certificate", "")
	case head == nil:
		r.add(KeyInForce, "not checked, because no trusted key signed the tree head", "")
	case !cert.maySignLeaf(leafIndex):
		r.add(KeyInForce, fmt.Sprintf("the key of the certificate retired at tree size %d, so it must not sign leaf %d: somebody used the key after it retired", *cert.TreeSize, leafIndex), "")
	case !head.maySignLeaf(headSize - 1):
		r.add(KeyInForce, fmt.Sprintf("the key of the tree head retired at tree size %d, so it must not sign a head of size %d: somebody used the key after it retired", *head.TreeSize, headSize), "")
	default:
		good := "certificate: " + cert.standing()
		if cert.Label != head.Label {
			good += "; tree head: " + head.standing()
		}
		r.add(KeyInForce, "", good)
	}
}

// VerifyTreeHead returns the key that signed a tree head (SPEC 2.7). `problem` says what is
// wrong if `document` is malformed, no key signed it, or the signing key may not sign a head
// of this size.
func VerifyTreeHead(document any, keys []Key) (by Key, problem string) {
	head, bad := readHead(document)
	if bad != "" {
		return by, bad
	}
	r := &Report{}
	signer := r.signed(TreeHeadSignature, keys, head.Message(), head.Signature)
	if signer == nil {
		return by, r.Checks[0].Detail
	}
	if !signer.maySignLeaf(head.TreeSize - 1) {
		return by, fmt.Sprintf("the signing key retired at tree size %d, so it must not sign a head of size %d: somebody used the key after it retired", *signer.TreeSize, head.TreeSize)
	}
	return *signer, ""
}
