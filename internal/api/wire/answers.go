package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

// Words returns the name of an API call: its method and path for REST, or its tool for MCP.
type Words func(problem.Call) string

// CommittedBody is the JSON body of the answer to a commitment. Next names the party's next call.
type CommittedBody struct {
	escrow.Committed
	Next string `json:"next"`
}

// Committed returns c with a text that names the next call. `words` names a call as REST or MCP
// does. `wait` follows the name of the call that reads the deal, so that this call waits for the
// end of COMMITTING. For REST, `wait` is "?wait=45&since=COMMITTING".
func Committed(d *escrow.Deal, c escrow.Committed, words Words, wait string) CommittedBody {
	read, reveal := words(problem.Call{Op: problem.ReadDeal, DealID: c.DealID}), words(problem.Call{Op: problem.Reveal, DealID: c.DealID})
	next := fmt.Sprintf("the deal is %s: read it with %s", c.State, read)
	switch c.State {
	case deal.Committing:
		next = fmt.Sprintf("wait for the others: call %s%s until the state is REVEALING, then call %s with your input and salt before reveal_deadline %d", read, wait, reveal, d.RevealDeadline)
	case deal.Revealing:
		next = fmt.Sprintf("all have committed: call %s with your input and salt before reveal_deadline %d", reveal, d.RevealDeadline)
	}
	return CommittedBody{c, next}
}

// view is a deal view (SPEC 2.4).
type view struct {
	DealID          string          `json:"deal_id"`
	Algorithm       string          `json:"algorithm"`
	Params          json.RawMessage `json:"algorithm_params"`
	Mode            string          `json:"mode"`
	Retention       string          `json:"retention"`
	State           deal.State      `json:"state"`
	Initiator       int             `json:"initiator"`
	Parties         []viewParty     `json:"parties"`
	CommitDeadline  int64           `json:"commit_deadline"`
	RevealDeadline  int64           `json:"reveal_deadline"`
	CreatedAt       int64           `json:"created_at"`
	CommitsClosedAt *int64          `json:"commits_closed_at"`
	RevealsClosedAt *int64          `json:"reveals_closed_at"`
	ComputedAt      *int64          `json:"computed_at"`
	Result          json.RawMessage `json:"result"`
	VoidFlakers     []int           `json:"void_flakers"`
	CertificateID   *string         `json:"certificate_id"`
}

type viewParty struct {
	Index      int     `json:"index"`
	Label      string  `json:"label"`
	Committed  bool    `json:"committed"`
	Commitment *string `json:"commitment"`
	Revealed   bool    `json:"revealed"`
}

// View returns the JSON of a deal view (SPEC 2.4). The member `initiator` is always 0, because
// party 0 is the initiator.
func View(v escrow.View) ([]byte, error) {
	body := view{
		DealID: v.DealID, Algorithm: v.Algorithm, Params: v.Params, Mode: v.Mode, Retention: v.Retention, State: v.State,
		Parties: make([]viewParty, len(v.Parts)), CommitDeadline: v.CommitDeadline, RevealDeadline: v.RevealDeadline, CreatedAt: v.CreatedAt,
		CommitsClosedAt: v.CommitsClosedAt, RevealsClosedAt: v.RevealsClosedAt, ComputedAt: v.ComputedAt,
		Result: v.Result, VoidFlakers: v.VoidFlakers, CertificateID: v.CertificateID,
	}
	for i, p := range v.Parts {
		body.Parties[i] = viewParty{i, v.Labels[i], p.Commitment != nil, p.Commitment, p.Revealed}
	}
	return web.Encode(body)
}

// Certificate returns the JSON of a certificate (SPEC 2.5). It does not change the signed bytes,
// but inserts the unsigned members log_proof and signature before the final brace.
func Certificate(c escrow.Issued) ([]byte, error) {
	end, err := web.Encode(struct {
		Proof     certificate.LogProof `json:"log_proof"`
		Signature string               `json:"signature"`
	}{c.Proof, c.Signature})
	if err != nil {
		return nil, err
	}
	body := append(make([]byte, 0, len(c.Payload)+len(end)), c.Payload[:len(c.Payload)-1]...)
	body = append(body, ',')
	return append(body, end[1:]...), nil
}

// Bundle returns the JSON of a certificate with everything that its offline verification needs.
func Bundle(b escrow.Bundle) ([]byte, error) {
	type chain struct {
		Hash      string `json:"chain_hash"`
		PublicKey string `json:"public_key"`
		Genesis   int64  `json:"genesis_time"`
		Period    int64  `json:"period"`
	}
	body := struct {
		Version     string            `json:"bundle_version"`
		Certificate json.RawMessage   `json:"certificate"`
		TreeHead    translog.TreeHead `json:"tree_head"`
		Keys        json.RawMessage   `json:"keys"`
		LogProof    string            `json:"log_proof,omitempty"`
		Declaration json.RawMessage   `json:"declaration,omitempty"`
		Beacon      *chain            `json:"beacon,omitempty"`
		Own         *escrow.OwnInput  `json:"own_input,omitempty"`
	}{Version: verification.BundleVersion, TreeHead: b.Head, Keys: b.Keys, LogProof: string(b.TLogProof), Declaration: b.Declaration, Own: b.Own}
	var err error
	if body.Certificate, err = Certificate(b.Issued); err != nil {
		return nil, err
	}
	if b.Chain != nil {
		body.Beacon = &chain{b.Chain.Hash, hex.EncodeToString(b.Chain.PublicKey), b.Chain.Genesis, b.Chain.Period}
	}
	return web.Encode(body)
}

const commitmentScheme = "sha256: followed by the lower-case hex of SHA-256(RFC 8785 canonical JSON of the party input ‖ salt bytes). " +
	"Inputs hold integers only, within ±9007199254740991, nested at most 31 deep; " +
	"the canonical JSON has at most this many bytes: {{input sizes}}. " +
	"The salt bytes are the UTF-8 bytes of the salt string, at most 1024, empty by default. " +
	"If the salt is an even number of hex digits, a commitment over the bytes that the digits encode is also accepted. " +
	"Use 16 random bytes (32 hex digits) as the salt: without a salt, anyone who sees the commitment can test guesses of the input."

// flow describes the life of a deal. Each %s is the name of an API call in REST or MCP, in this
// order: CreateKey, CreateDeal, Commit, Reveal, Draw, ReadCertificate, Verify.
const flow = "1. Anyone gets an API key (%s). " +
	"2. The initiator creates a deal (%s) and hands each party its invite token. " +
	"3. Before commit_deadline each party sends the commitment to its input (%s). " +
	"4. When all have committed, and before reveal_deadline, each party reveals input and salt (%s). " +
	"5. With the last reveal the algorithm runs and the signed certificate is issued; " +
	"a deal with a beacon round ({{with beacon}}) first waits for that round (%s). " +
	"6. Parties fetch the certificate (%s); anyone verifies it (%s) against the public transparency log. " +
	"A missed deadline or a rejection ({{with reject}}) makes the deal VOID, and the certificate names the parties that caused the VOID."

// Catalogue returns the JSON of the algorithm catalogue (SPEC 2.10). `words` returns the name of
// a call in REST or MCP. If `vectors` is false, test_vectors of each algorithm is empty.
func Catalogue(words Words, vectors bool) ([]byte, error) {
	var calls []any
	for _, op := range []problem.Op{problem.CreateKey, problem.CreateDeal, problem.Commit, problem.Reveal, problem.Draw, problem.ReadCertificate, problem.Verify} {
		calls = append(calls, words(problem.Call{Op: op}))
	}
	algorithms := algorithm.Catalogue()
	if !vectors {
		for i := range algorithms {
			algorithms[i].TestVectors = []algorithm.Vector{}
		}
	}
	return web.Encode(struct {
		Algorithms []algorithm.CatalogueEntry `json:"algorithms"`
		Commitment string                     `json:"commitment"`
		Protocol   string                     `json:"protocol"`
	}{algorithms, algorithm.Fill(commitmentScheme), algorithm.Fill(fmt.Sprintf(flow, calls...))})
}
