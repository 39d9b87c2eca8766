package verification

import (
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/keys"
)

const developmentKey = "who issued the certificate: the deployment declares the signing key a development key, and certificates by such a key prove nothing"

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
func VerifyTreeHead(document any, trusted keys.List) (by keys.Key, problem string) {
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
