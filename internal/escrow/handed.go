package escrow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
	"github.com/fairpact/fairpact/internal/verification"
)

// What a report repeats of a document at most.
const (
	longestText   = 200     // bytes of one text
	longestResult = 4 << 10 // bytes of the result
	mostParties   = 16
)

// Handed is the report on a certificate that somebody was handed. The checks are
// made from the document's own bytes.
type Handed struct {
	Verification
	Findings []verification.Check `json:"findings"`
	Stored   string               `json:"stored"` // one of the constants below
	Says     *Says                `json:"says"`   // null where the document has not the form of a certificate
	PubKey   *string              `json:"pubkey"` // who signed it; null where no key of this deployment did
	TreeHead *translog.TreeHead   `json:"tree_head"`
}

// How a document compares with the certificate that this service has stored.
const (
	StoredSame    = "same"    // byte for byte, but for the proof
	StoredDiffers = "differs" // the document is forged or damaged
	StoredUnknown = "unknown" // no certificate with this id is published here
)

// Says is what a certificate says, cut where it is long.
type Says struct {
	DealID      string          `json:"deal_id"`
	Algorithm   string          `json:"algorithm"`
	Outcome     string          `json:"outcome"`
	Parties     int             `json:"parties"`
	Labels      []string        `json:"labels"` // of the first parties
	VoidFlakers []int           `json:"void_flakers"`
	Result      json.RawMessage `json:"result"` // null where it is longer than 4,096 bytes
}

// VerifyHanded checks a certificate as anyone would who was handed it: its form,
// its signature, and that its proof leads to a tree head that the log has
// published. It then compares the document with what is stored under its cert_id,
// and with certID, unless that is empty. With the log or the database out of reach
// it fails and never says that a certificate is not valid.
func (s *Service) VerifyHanded(ctx context.Context, document map[string]any, certID string) (Handed, error) {
	if err := limits.Turn(ctx); err != nil {
		return Handed{}, err
	}
	text := canon.Encode(document)
	// A document of another form leaves these empty, and its shape is refused below.
	var c certificate.Certificate
	formed := json.Unmarshal(text, &c) == nil
	limits.Rest(ctx)
	head, err := s.headOf(ctx, c.LogProof.TreeSize)
	if err != nil {
		return Handed{}, err
	}
	stored, err := s.storedAs(ctx, c.CertID, document)
	if err != nil {
		return Handed{}, err
	}
	if err := limits.Turn(ctx); err != nil {
		return Handed{}, err
	}

	evidence := verification.Evidence{Certificate: document, Keys: verifying(s.keys.Keys())}
	// Seat keys may be thousands: they are looked at in what this service signed.
	signer, unsigned := s.keys.SignerOf(verification.Signed(document), c.Signature)
	if unsigned == nil {
		evidence.Open = opened
	}
	if head != nil {
		evidence.TreeHead = map[string]any{"tree_size": head.TreeSize, "root_hash": head.RootHash, "signature": head.Signature}
	}
	if evidence.Open != nil {
		evidence.Open = whileRunning(ctx, evidence.Open)
	}
	report := verification.Verify(evidence)
	if err := ctx.Err(); err != nil { // the report may be incomplete, and valid:false would be a verdict
		return Handed{}, problem.New(problem.Overloaded, "the certificate was not checked to the end; send the same request again in a few seconds").After(2).Because(err)
	}
	if stored == StoredDiffers {
		report.Add(verification.Check{Name: "stored", Detail: "the certificate that this service issued under this cert_id is another one: this document is forged or damaged"})
	}
	if certID != "" && certID != c.CertID {
		report.Add(verification.Check{Name: "cert_id", Detail: "the document is not the certificate that cert_id names"})
	}
	h := Handed{
		Verification: Verification{
			CertID: cut(c.CertID), Valid: report.Valid, Outcome: certificate.Void,
			Checks: Checks{report.Holds(verification.Signature), report.Holds(verification.InputRootForm), report.Holds(verification.MerkleInclusion) && report.Holds(verification.TreeHeadSignature)},
			Note:   "the document's signature, its form and its inclusion in the log were checked; check them yourself with the published keys",
		},
		Stored: stored, TreeHead: head,
	}
	for _, check := range report.Checks {
		check.Detail = cut(check.Detail)
		h.Findings = append(h.Findings, check)
	}
	if len(report.Notes) > 0 {
		h.Note += ". Not proven: " + cut(strings.Join(report.Notes, "; "))
	}
	if !h.Valid {
		h.Note = "do not rely on this document: " + failed(h.Findings)
	}
	if unsigned == nil {
		h.PubKey = &signer.PublicKey
	}
	if formed && report.Holds(verification.Shape) {
		h.Outcome, h.Says = c.Outcome, saysOf(c.Payload)
	}
	return h, nil
}

// whileRunning returns open until ctx ends; then it opens no key. The signatures of 10,000
// seat keys take more than a second to check, and nobody reads the report of a call that
// has ended.
func whileRunning(ctx context.Context, open func([]verification.Trusted) []verification.Key) func([]verification.Trusted) []verification.Key {
	return func(named []verification.Trusted) []verification.Key {
		if err := ctx.Err(); err != nil {
			return slices.Repeat([]verification.Key{{Problem: err}}, len(named))
		}
		return open(named)
	}
}

// headOf returns the published tree head of a size, or nil where there is none.
func (s *Service) headOf(ctx context.Context, size int64) (*translog.TreeHead, error) {
	if size <= 0 {
		return nil, nil
	}
	head, err := s.log.TreeHeadAt(ctx, size)
	switch {
	case errors.Is(err, translog.ErrNotFound), errors.Is(err, translog.ErrRefused): // a size that no log has
		return nil, nil
	case err != nil:
		return nil, logTrouble(err)
	}
	return &head, nil
}

// storedAs compares a document with the published certificate of its id. The
// proof is made again at each read, so it is left out.
func (s *Service) storedAs(ctx context.Context, certID string, document map[string]any) (string, error) {
	stored, err := s.published(ctx, certID)
	if errors.Is(err, store.ErrNotFound) {
		return StoredUnknown, nil
	}
	if err != nil {
		return "", err
	}
	if string(verification.Signed(document)) != string(stored.Payload) || document["signature"] != *stored.Signature {
		return StoredDiffers, nil
	}
	return StoredSame, nil
}

// opened makes keys that verify of labels.
func opened(named []verification.Trusted) []verification.Key {
	keys := make([]signing.Key, len(named))
	for i, k := range named {
		keys[i].PublicKey = k.Label
	}
	return verifying(keys)
}

func verifying(keys []signing.Key) (all []verification.Key) {
	for _, k := range keys {
		one := verification.Key{Trusted: verification.Trusted{Label: k.PublicKey, State: k.State, RetiredAt: k.RetiredAt, TreeSize: k.TreeSize}}
		set, err := signing.NewVerifyingKey(k.PublicKey)
		if one.Problem = err; err == nil {
			one.Verify = set.Verify
		}
		all = append(all, one)
	}
	return all
}

// failed names the checks that failed and why.
func failed(findings []verification.Check) string {
	var why []string
	for _, f := range findings {
		if !f.OK {
			why = append(why, fmt.Sprintf("%s: %s", f.Name, f.Detail))
		}
	}
	return strings.Join(why, "; ")
}

func saysOf(p certificate.Payload) *Says {
	says := &Says{DealID: cut(p.DealID), Algorithm: cut(p.Algorithm), Outcome: p.Outcome, Parties: len(p.Parties), Labels: []string{}, Result: p.Result}
	for _, party := range p.Parties[:min(mostParties, len(p.Parties))] {
		says.Labels = append(says.Labels, cut(party.Label))
	}
	says.VoidFlakers = p.VoidFlakers[:min(mostParties, len(p.VoidFlakers))]
	if len(says.Result) > longestResult {
		says.Result = nil
	}
	return says
}

// cut shortens a text that comes from strangers.
func cut(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText], "") + "…"
}
