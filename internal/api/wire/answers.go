package wire

import (
	"encoding/hex"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

// Surface is REST or MCP: how its texts name calls.
type Surface struct {
	Call func(problem.Call) string // returns a call's method and path for REST, or its tool for MCP
	Wait string                    // follows the call that reads a deal, to wait for the end of COMMITTING
}

// The two surfaces.
var (
	REST = Surface{problem.Call.REST, "?wait=45&since=COMMITTING"}
	MCP  = Surface{problem.Call.MCP, " with wait_seconds 45 and `since` COMMITTING"}
)

// CommittedOf returns c with a text that names the next call.
func CommittedOf(d *escrow.Deal, c escrow.Committed, s Surface) Committed {
	read, reveal := s.Call(problem.Call{Op: problem.ReadDeal, DealID: c.DealID}), s.Call(problem.Call{Op: problem.Reveal, DealID: c.DealID})
	next := fmt.Sprintf("the deal is %s: read it with %s", c.State, read)
	switch sealed := c.OpensAt > 0; {
	case sealed && (c.State == deal.Committing || c.State == deal.Revealing):
		next = fmt.Sprintf("you are done: your seal opens by itself from %d (unix time) on, and the deal continues without you; read the result with %s then. You can also call %s earlier, once all have committed", c.OpensAt, read, reveal)
	case c.State == deal.Committing:
		next = fmt.Sprintf("wait for the others: call %s%s until the state is REVEALING, then call %s with your input and salt before reveal_deadline %d", read, s.Wait, reveal, d.RevealDeadline)
	case c.State == deal.Revealing:
		next = fmt.Sprintf("all have committed: call %s with your input and salt before reveal_deadline %d", reveal, d.RevealDeadline)
	}
	return Committed{c, next}
}

// ViewOf returns the body of a deal view.
func ViewOf(v escrow.View) View {
	body := View{
		DealID: v.DealID, Algorithm: v.Algorithm, Params: v.Params, Mode: v.Mode, Retention: v.Retention, State: string(v.State),
		Parties: make([]Party, len(v.Parts)), CommitDeadline: v.CommitDeadline, RevealDeadline: v.RevealDeadline, CreatedAt: v.CreatedAt,
		CommitsClosedAt: v.CommitsClosedAt, RevealsClosedAt: v.RevealsClosedAt, ComputedAt: v.ComputedAt,
		Result: v.Result, VoidFlakers: v.VoidFlakers, CertificateID: v.CertificateID,
		ContentsDeleted: v.ContentsDeleted, Audience: v.Audience, ActedBy: v.ActedBy, Title: v.Title, Message: v.Message,
	}
	for i, p := range v.Parts {
		body.Parties[i] = Party{i, v.Labels[i], p.Commitment != nil, p.Commitment, p.Revealed}
	}
	return body
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

// BundleOf returns the body of a bundle.
func BundleOf(b escrow.Bundle) (body Bundle, err error) {
	body = Bundle{Version: verification.BundleVersion, TreeHead: b.Head, Keys: b.Keys, LogProof: string(b.TLogProof), Declaration: b.Declaration, Own: b.Own, Openings: b.Openings}
	if b.Chain != nil {
		chain := chainOf(*b.Chain)
		if chain.Hash == algorithm.Quicknet { // verifiers know it, and those of older releases know no other members
			chain.Seed, chain.ID = "", ""
		}
		body.Beacon = &chain
	}
	if b.Closing != nil {
		body.Closing = &Closing{chainOf(b.Closing.Chain), b.Closing.Seals, string(b.Closing.TLogProof)}
	}
	body.Certificate, err = Certificate(b.Issued)
	return body, err
}

// PublicOf returns the JSON of what an audience sees. b is nil before the certificate is published.
func PublicOf(v escrow.View, b *escrow.Bundle) ([]byte, error) {
	body := Public{Deal: ViewOf(v)}
	if b != nil {
		bundle, err := BundleOf(*b)
		if err != nil {
			return nil, err
		}
		body.Bundle = &bundle
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

// Catalogue returns the JSON of the algorithm catalogue (SPEC 2.10). If `vectors` is false,
// test_vectors of each algorithm is empty.
func Catalogue(s Surface, vectors bool) ([]byte, error) {
	var calls []any
	for _, op := range []problem.Op{problem.CreateKey, problem.CreateDeal, problem.Commit, problem.Reveal, problem.Draw, problem.ReadCertificate, problem.Verify} {
		calls = append(calls, s.Call(problem.Call{Op: op}))
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
	}{algorithms, algorithm.Fill(commitmentScheme, nil), algorithm.Fill(fmt.Sprintf(flow, calls...), nil)})
}

// BeaconOf returns the body of GET /v1/beacon.
func BeaconOf(c drand.Chain) Beacon { return Beacon{chainOf(c), drand.Scheme} }

func chainOf(c drand.Chain) BeaconChain {
	return BeaconChain{c.Hash, hex.EncodeToString(c.PublicKey), c.Genesis, c.Period, c.GenesisSeed, c.BeaconID}
}
