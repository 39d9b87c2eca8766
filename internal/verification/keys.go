package verification

import "fmt"

// States of a key in the answer of GET /v1/pubkeys.
const (
	Current = "current" // signs now, or soon will
	Next    = "next"    // published before it signs
	Retired = "retired" // replaced; its earlier signatures stay valid
)

// mostKeys is the most keys of a deployment. It bounds the time of a verification.
const mostKeys = 1000

// Trusted is a public key in the form of GET /v1/pubkeys.
type Trusted struct {
	Label     string
	State     string // "" if the document has no states
	RetiredAt *int64 // unix seconds at which a retired key was replaced; nil if unknown
	TreeSize  *int64 // a retired key may sign only leaves below this index; nil if there is no such bound

	Development bool // whether GET /v1/status declares this key a development key; GET /v1/pubkeys does not say
}

// developmentKey is the note on a certificate that a development key signed.
const developmentKey = "whose certificate it is: the deployment declares this key a development key, whose certificates prove nothing"

// mayHold reports whether the key was allowed to sign a leaf at this index.
func (t Trusted) mayHold(leafIndex int64) bool {
	return t.State != Retired || t.TreeSize == nil || leafIndex < *t.TreeSize
}

func (t Trusted) standing() string {
	switch {
	case t.State == "":
		return "a key given without its state"
	case t.State != Retired:
		return "the " + t.State + " key"
	case t.TreeSize == nil:
		return "a retired key that no tree size closes"
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
// in the order of the answer. Only GET /v1/pubkeys says what each key may sign. If document
// is neither answer, problem says what is wrong. ReadKeys does not check labels; the check
// KeysUsable does.
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
		return nil, "has neither `keys`, as GET /v1/pubkeys answers, nor `pubkey`, as GET /v1/status answers"
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
			return nil, fmt.Sprintf("`keys` [%d] is %s and has what only a retired key has", i, k.State)
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

// inForce adds the check that both keys were allowed to sign at this leaf and head size.
// cert and head are the keys that made the two signatures, or nil. A head of n leaves
// covers the leaves 0 to n-1.
func (r *Report) inForce(cert, head *Key, leafIndex, headSize int64) {
	switch {
	case cert == nil:
		r.add(KeyInForce, "not checked, because no key made the certificate's signature", "")
	case head == nil:
		r.add(KeyInForce, "not checked, because no key made the tree head's signature", "")
	case !cert.mayHold(leafIndex):
		r.add(KeyInForce, fmt.Sprintf("the key of the certificate retired at tree size %d and this is leaf %d: it was signed after that, by whoever holds the retired key", *cert.TreeSize, leafIndex), "")
	case !head.mayHold(headSize - 1):
		r.add(KeyInForce, fmt.Sprintf("the key of the tree head retired at tree size %d and the head is of size %d: it was signed after that, by whoever holds the retired key", *head.TreeSize, headSize), "")
	default:
		good := "certificate: " + cert.standing()
		if cert.Label != head.Label {
			good += "; tree head: " + head.standing()
		}
		r.add(KeyInForce, "", good)
	}
}

// VerifyTreeHead returns the key that signed a tree head (SPEC 2.7). If no key did, or
// the key may not sign a head of this size, problem says so.
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
	if !signer.mayHold(head.TreeSize - 1) {
		return by, fmt.Sprintf("its key retired at tree size %d and it is of size %d: it was signed after that, by whoever holds the retired key", *signer.TreeSize, head.TreeSize)
	}
	return *signer, ""
}
