package problem

import "strings"

// Op is an operation of the API.
type Op int

// The operations. IdempotencyKey is not an operation: in an error text it becomes the name of
// the header Idempotency-Key (REST) or of the argument idempotency_key (MCP).
const (
	CreateKey Op = iota
	ListAlgorithms
	CreateDeal
	ReadDeal
	ReadDeclaration
	Commit
	Reveal
	Draw
	Cancel
	ReadCertificate
	ReadBundle
	ReadInputs
	Verify
	VerifySubmitted
	ReadStatus
	ReadKeys
	ReadBeacon
	ReadOpenAPI
	IdempotencyKey
)

// Names are the names of an operation.
type Names struct {
	Name   string // in logs, which use neither REST nor MCP names
	Method string
	Path   string
	Tool   string // the MCP tool for it; empty: none
}

// Ops holds the names of each operation. The routes of REST, the tools of MCP and the calls in
// error texts follow from it; package ops says how each operation is served.
var Ops = [...]Names{
	CreateKey:       {"create key", "POST", "/v1/keys", "create_key"},
	ListAlgorithms:  {"list algorithms", "GET", "/v1/algorithms", "list_algorithms"},
	CreateDeal:      {"create deal", "POST", "/v1/deals", "create_deal"},
	ReadDeal:        {"read deal", "GET", "/v1/deals/{id}", "get_deal"},
	ReadDeclaration: {"read declaration", "GET", "/v1/deals/{id}/declaration", "compute_commitment_tool"}, // REST: the values from which the client builds the bytes that a seat key signs; MCP: these bytes
	Commit:          {"commit", "POST", "/v1/deals/{id}/commit", "commit_input"},
	Reveal:          {"reveal", "POST", "/v1/deals/{id}/reveal", "reveal_input"},
	Draw:            {"draw", "POST", "/v1/deals/{id}/entropy", "get_certificate"}, // this tool draws first
	Cancel:          {"cancel", "POST", "/v1/deals/{id}/cancel", ""},
	ReadCertificate: {"read certificate", "GET", "/v1/deals/{id}/certificate", "get_certificate"},
	ReadBundle:      {"read bundle", "GET", "/v1/deals/{id}/bundle", "get_certificate"},
	ReadInputs:      {"read inputs", "GET", "/v1/deals/{id}/inputs", ""},
	Verify:          {"verify", "GET", "/v1/verify/{cert_id}", "verify_certificate"},
	VerifySubmitted: {"verify a document", "POST", "/v1/verify", "verify_certificate"},
	ReadStatus:      {"read status", "GET", "/v1/status", ""},
	ReadKeys:        {"read keys", "GET", "/v1/pubkeys", ""},
	ReadBeacon:      {"read beacon", "GET", "/v1/beacon", ""},
	ReadOpenAPI:     {"read OpenAPI", "GET", "/openapi.json", ""},
	IdempotencyKey:  {"idempotency key", "", "Idempotency-Key", "idempotency_key"},
}

// Names returns the row of an operation in Ops.
func (op Op) Names() Names { return Ops[op] }

// Call is an operation that an error text names. DealID is empty if the operation needs no
// deal, or if the text is not about one particular deal.
type Call struct {
	Op     Op
	DealID string
}

// KeyHeader is the idempotency key in an error text: Idempotency-Key in REST, idempotency_key in MCP.
var KeyHeader = Call{Op: IdempotencyKey}

// String returns the operation's name for logs, followed by DealID if it is set.
func (c Call) String() string { return strings.TrimSpace(Ops[c.Op].Name + " " + c.DealID) }

// REST returns the method and path of the call. For IdempotencyKey it returns the header's name.
func (c Call) REST() string {
	text := strings.TrimSpace(Ops[c.Op].Method + " " + Ops[c.Op].Path)
	if c.DealID != "" {
		text = strings.Replace(text, "{id}", c.DealID, 1)
	}
	return text
}

// MCP returns the tool for the call. For IdempotencyKey it returns the argument's name.
func (c Call) MCP() string { return Ops[c.Op].Tool }
