package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/translog"
	"github.com/fairpact/fairpact/internal/verification"
)

// Words returns the name of a call on one surface: a path of REST or a tool of MCP.
type Words func(problem.Call) string

// CommittedBody is the answer to a commitment, with the next step.
type CommittedBody struct {
	escrow.Committed
	Next string `json:"next"`
}

// Committed returns c with the next step. words names the calls of that step. wait is appended
// to the call that reads the deal, so that it waits for the end of COMMITTING; for REST it
// is "?wait=45&since=COMMITTING".
func Committed(d *escrow.Deal, c escrow.Committed, words Words, wait string) CommittedBody {
	read, reveal := words(problem.Call{Op: problem.ReadDeal, DealID: c.DealID}), words(problem.Call{Op: problem.Reveal, DealID: c.DealID})
	next := fmt.Sprintf("the deal is %s: read it with %s", c.State, read)
	switch c.State {
	case deal.Committing:
		next = fmt.Sprintf("wait for the others: call %s%s until its state is REVEALING, then call %s with your input and salt before %d", read, wait, reveal, d.RevealDeadline)
	case deal.Revealing:
		next = fmt.Sprintf("all have committed: call %s with your input and salt before %d", reveal, d.RevealDeadline)
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

// View writes a deal view. Party 0 is the initiator.
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
	return answer.Encode(body)
}

// Certificate writes a certificate (SPEC 2.5): the signed bytes unchanged, with the two
// unsigned members appended.
func Certificate(c escrow.Issued) ([]byte, error) {
	end, err := answer.Encode(struct {
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

// Bundle writes a certificate with everything that its offline verification needs.
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
	return answer.Encode(body)
}

const commitmentScheme = "sha256: followed by the lower-case hex of SHA-256(RFC 8785 canonical JSON of the party input ‖ salt bytes). " +
	"Inputs hold integers only, within ±9007199254740991, nested at most 31 deep; " +
	"the canonical JSON has at most so many bytes: {{input sizes}}. " +
	"The salt bytes are the UTF-8 bytes of the salt string, at most 1024, empty by default; a salt that is an even number of hex digits is also accepted " +
	"where the commitment was made over the bytes that they spell. " +
	"Use 16 random bytes (32 hex digits): a commitment without salt to an input that can be guessed is opened by whoever sees it."

// flow describes a deal. Its %s stand for the calls CreateKey, CreateDeal, Commit,
// Reveal, Draw, ReadCertificate and Verify, as a [Words] names them.
const flow = "1. Anyone gets an API key (%s). " +
	"2. The initiator creates a deal (%s) and hands each party its invite token. " +
	"3. Before commit_deadline each party sends the commitment to its input (%s). " +
	"4. When all have committed, and before reveal_deadline, each party reveals input and salt (%s). " +
	"5. With the last reveal the algorithm runs and the signed certificate is issued; " +
	"a deal with a beacon round ({{with beacon}}) first waits for it (%s). " +
	"6. Parties fetch the certificate (%s); anyone verifies it (%s) against the public transparency log. " +
	"A missed deadline or a rejection ({{with reject}}) makes the deal VOID, and the certificate names who caused it."

// Catalogue writes the algorithm catalogue (SPEC 2.10) and names calls by words.
// Unless vectors is true, each algorithm's test_vectors is empty.
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
	return answer.Encode(struct {
		Algorithms []algorithm.CatalogueEntry `json:"algorithms"`
		Commitment string                     `json:"commitment"`
		Protocol   string                     `json:"protocol"`
	}{algorithms, algorithm.Fill(commitmentScheme), algorithm.Fill(fmt.Sprintf(flow, calls...))})
}
