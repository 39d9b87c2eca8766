package wire

import "github.com/fairpact/fairpact/internal/algorithm"

const commitment = "sha256: followed by the lower-case hex of SHA-256(RFC 8785 canonical JSON of the party input ‖ salt bytes). " +
	"Inputs hold integers only, within ±9007199254740991, nested at most 31 deep; " +
	"the canonical JSON has at most so many bytes: {{input sizes}}. " +
	"The salt bytes are the UTF-8 bytes of the salt string, at most 1024, empty by default; a salt that is an even number of hex digits is also accepted " +
	"where the commitment was made over the bytes that they spell. " +
	"Use 16 random bytes (32 hex digits): a commitment without salt to an input that can be guessed is opened by whoever sees it."

const protocol = "1. Anyone gets an API key (POST /v1/keys). " +
	"2. The initiator creates a deal (POST /v1/deals) and hands each party its invite token. " +
	"3. Before commit_deadline each party sends the commitment to its input (POST /v1/deals/{id}/commit). " +
	"4. When all have committed, and before reveal_deadline, each party reveals input and salt (POST /v1/deals/{id}/reveal). " +
	"5. With the last reveal the algorithm runs and the signed certificate is issued; " +
	"a deal with a beacon round ({{with beacon}}) first waits for it (POST /v1/deals/{id}/entropy). " +
	"6. Parties fetch the certificate (GET /v1/deals/{id}/certificate); anyone verifies it (GET /v1/verify/{cert_id}) against the public transparency log. " +
	"A missed deadline or a rejection ({{with reject}}) makes the deal VOID, and the certificate names who caused it."

// Catalogue writes the body of GET /v1/algorithms (SPEC 2.10).
func Catalogue() ([]byte, error) {
	return Encode(struct {
		Algorithms []algorithm.CatalogueEntry `json:"algorithms"`
		Commitment string                     `json:"commitment"` // the commitment scheme
		Protocol   string                     `json:"protocol"`   // the flow of a deal
	}{algorithm.Catalogue(), algorithm.Fill(commitment), algorithm.Fill(protocol)})
}
