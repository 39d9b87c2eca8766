package escrow

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

// Verification says whether a certificate is valid, and which checks it passed (SPEC 2.9).
type Verification struct {
	CertID  string `json:"cert_id"`
	Valid   bool   `json:"valid"`
	Outcome string `json:"outcome"`
	Checks  Checks `json:"checks"`
	Note    string `json:"note"`
}

// Checks says which checks passed.
type Checks struct {
	Signature bool `json:"signature"`
	InputRoot bool `json:"input_root_wellformed"`
	Inclusion bool `json:"merkle_inclusion"`
}

func checksOf(r verification.Report) Checks {
	return Checks{r.Holds(verification.Signature), r.Holds(verification.InputRootForm), r.Holds(verification.MerkleInclusion) && r.Holds(verification.TreeHeadSignature)}
}

// Verify checks the stored certificate against the key set and the log. If the log or the database is
// out of reach, the result is an error and no report.
func (s *Service) Verify(ctx context.Context, certID string) (Verification, error) {
	if err := budget.From(ctx).Hold(ctx, budget.MaxSmall); err != nil {
		return Verification{}, err
	}
	c, known, err := s.judged(ctx, certID)
	if errors.Is(err, store.ErrNotFound) {
		return Verification{}, noCertificate()
	}
	if err != nil {
		return Verification{}, err
	}
	i, err := s.inspect(ctx, c, known)
	if err != nil {
		return Verification{}, err
	}
	v := Verification{CertID: certID, Valid: i.Valid, Outcome: i.outcome, Checks: checksOf(i.Report)}
	if v.Outcome != certificate.Computed {
		v.Outcome = certificate.Void
	}
	if !v.Checks.Inclusion {
		s.logger.ErrorContext(ctx, "the log does not prove the certificate", "cert_id", certID, "err", errors.Unwrap(i.cause))
	}
	switch {
	case v.Checks.Signature && !i.key.MaySignLeaf(*c.LeafIndex):
		v.Note = fmt.Sprintf("the key %s retired when the log had %d leaves, so it must not sign leaf %d or a later leaf. This certificate is leaf %d: do not rely on this certificate, and tell the operator of this deployment", i.key.Label, *i.key.TreeSize, *i.key.TreeSize, *c.LeafIndex)
	case !v.Valid:
		v.Note = "at least one check failed: do not rely on this certificate, and tell the operator of this deployment"
	default:
		v.Note = "the stored certificate's signature, the form of its input_root and its inclusion in the log were checked now; check them yourself with the published keys"
		if s.options.Development(i.key.Label) {
			v.Note += "; this deployment signs with a development key: its certificates prove nothing"
		}
	}
	return v, nil
}

// judged returns a published certificate for inspect: with the verdict on it, or with its payload. The
// database computes the digest of a large payload, so that only a payload without a verdict is read.
func (s *Service) judged(ctx context.Context, certID string) (c *store.Certificate, known *checked, err error) {
	if c, err = s.published(ctx, certID, s.store.CertificateRow); err == nil {
		c, err = s.store.Digested(ctx, c)
	}
	if err != nil {
		return nil, nil, err
	}
	if verdict, ok := s.verdict(c.Entry(), *c.Signature); ok {
		return c, &verdict, nil
	}
	if c.Payload == nil {
		c, err = s.published(ctx, certID, s.store.Certificate)
	}
	return c, nil, err
}

func noCertificate() error {
	return problem.New(problem.CertNotFound, "no published certificate has this id; use the certificate_id of %s", problem.Call{Op: problem.ReadDeal})
}

// HasReport returns CERT_NOT_FOUND if Verify would. It verifies nothing.
func (s *Service) HasReport(ctx context.Context, certID string) error {
	_, err := s.published(ctx, certID, s.store.CertificateRow)
	if errors.Is(err, store.ErrNotFound) {
		err = noCertificate()
	}
	return err
}

// published returns the certificate with this id, or ErrNotFound if it has no leaf yet.
func (s *Service) published(ctx context.Context, certID string, read func(context.Context, string) (*store.Certificate, error)) (*store.Certificate, error) {
	if !sealing.ValidID(certPrefix, certID) {
		return nil, store.ErrNotFound
	}
	c, err := read(ctx, certID)
	if err == nil && (c.LeafIndex == nil || c.Signature == nil) {
		return nil, store.ErrNotFound
	}
	return c, err
}

// Limits on what a SubmittedReport quotes from the untrusted certificate.
const (
	longestText   = 200     // bytes of one label, id or check detail
	longestResult = 4 << 10 // bytes of the result
	mostParties   = 16
)

// SubmittedReport is the report on a certificate that the caller sent.
type SubmittedReport struct {
	Verification
	Findings []verification.Check `json:"findings"`
	Stored   string               `json:"stored"` // StoredSame, StoredDiffers or StoredUnknown
	Says     *CertificateSummary  `json:"says"`   // null if the document does not have the form of a certificate
	PubKey   *string              `json:"pubkey"` // the key that signed the document; null: no key of this deployment
	TreeHead *translog.TreeHead   `json:"tree_head"`
}

// The values of SubmittedReport.Stored: how the document compares with the stored certificate.
const (
	StoredSame    = "same"    // the signed part and the signature equal the stored ones; the proofs are not compared
	StoredDiffers = "differs" // the document is forged or damaged
	StoredUnknown = "unknown" // no certificate with this id is published here
)

// CertificateSummary holds the contents of a certificate, with long parts cut.
type CertificateSummary struct {
	DealID      string          `json:"deal_id"`
	Algorithm   string          `json:"algorithm"`
	Outcome     string          `json:"outcome"`
	Parties     int             `json:"parties"`
	Labels      []string        `json:"labels"` // of the first 16 parties
	VoidFlakers []int           `json:"void_flakers"`
	Result      json.RawMessage `json:"result"` // null if it is longer than 4,096 bytes
}

// VerifySubmitted checks a certificate that the caller sent, and compares it with the stored certificate
// of the same cert_id. If certID is not "", a document with another cert_id is invalid. If the log
// or the database is out of reach, it returns an error instead of a report.
func (s *Service) VerifySubmitted(ctx context.Context, document map[string]any, certID string) (SubmittedReport, error) {
	call := budget.From(ctx)
	if err := call.Long(ctx); err != nil {
		return SubmittedReport{}, err
	}
	// c is incomplete if the document is not a certificate; verification.Verify says why.
	var c certificate.Certificate
	formed := json.Unmarshal(canon.Encode(document), &c) == nil
	signed := verification.Signed(document)
	head, err := s.headOf(ctx, c.LogProof.TreeSize)
	if err != nil {
		return SubmittedReport{}, err
	}
	stored, err := s.published(ctx, c.CertID, s.store.CertificateRow)
	if err == nil && stored.Size == len(signed) {
		stored, err = s.store.Digested(ctx, stored)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return SubmittedReport{}, err
	}
	if err := call.Long(ctx); err != nil {
		return SubmittedReport{}, err
	}
	answer := SubmittedReport{Stored: compare(document["signature"], signed, stored), TreeHead: head}
	// These two checks are in the report only if they fail.
	report := verification.Report{Valid: true}
	if certID != "" && certID != c.CertID {
		report.Add(verification.Check{Name: "cert_id", Detail: "the document's cert_id is not the cert_id of the request"})
	}
	if answer.Stored == StoredDiffers {
		report.Add(verification.Check{Name: "stored", Detail: "forged or damaged: it is not the certificate that this service issued under this cert_id"})
	}
	if err := s.verifyDocument(ctx, &report, &answer, document, signed, c); err != nil { // the report may be incomplete, so its valid:false may be wrong
		return SubmittedReport{}, problem.New(problem.Overloaded, "the check was interrupted; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
	}
	answer.Verification = Verification{CertID: cut(c.CertID), Valid: report.Valid, Outcome: certificate.Void, Checks: checksOf(report)}
	claim := "outcome is VOID because the document does not have the form of a certificate"
	if formed && report.Holds(verification.Shape) {
		answer.Outcome, answer.Says = c.Outcome, summaryOf(c.Payload)
		claim = "the members `outcome` and `says` repeat what the document claims, true or not"
	}
	answer.Note = answer.note(report, claim)
	return answer, nil
}

// verifyDocument adds the checks of the document to the report, and the findings and the signing
// key to the answer.
func (s *Service) verifyDocument(ctx context.Context, report *verification.Report, answer *SubmittedReport, document map[string]any, signed []byte, c certificate.Certificate) error {
	trusted := s.keys.Keys()
	for i := range trusted {
		trusted[i].Development = s.options.Development(trusted[i].Label)
	}
	var failed error
	evidence := verification.Evidence{Certificate: document, Known: verification.Known{Keys: trusted}, Seat: unchecked}
	sum := hash(sha256.Sum256(append([]byte("seats\x00"), signed...)))
	if signer, err := s.keys.SignerOf(signed, c.Signature); err == nil {
		evidence.Seat, answer.PubKey = s.seatsOf(ctx, sum, &failed), &signer.Label
	}
	head := answer.TreeHead
	if head != nil {
		evidence.TreeHead = map[string]any{"tree_size": head.TreeSize, "root_hash": head.RootHash, "signature": head.Signature}
	}
	of := verification.Verify(evidence)
	if failed != nil {
		return failed
	}
	if answer.PubKey != nil && of.Holds(verification.PartySignatures) {
		s.verified.Add(sum, checked{}, 0)
	}
	report.Claims = of.Claims
	for _, check := range of.Checks {
		if head == nil && check.Name == verification.TreeHeadSignature {
			check.Detail = fmt.Sprintf("the log has no tree of size %d (the tree_size in log_proof)", c.LogProof.TreeSize)
		}
		report.Add(check)
	}
	for _, check := range report.Checks {
		check.Detail = cut(check.Detail)
		answer.Findings = append(answer.Findings, check)
	}
	return ctx.Err()
}

// unchecked is for a document that this service did not sign: it can name thousands of seat keys.
func unchecked(certificate.Attestation, certificate.Seat) error {
	return errors.New("seat signatures cannot be checked here: use fairpactctl verify")
}

// seatsPerTurn is the number of seat signatures that a call checks before it passes its turn on, about 20 ms.
const seatsPerTurn = 64

// seatsOf returns a verification.Evidence.Seat for a document that this service signed. The verdict on
// all of its seat signatures is remembered by the digest of the document, because they take seconds.
// If the call loses its turn or ctx ends, the function sets *failed and checks no more.
func (s *Service) seatsOf(ctx context.Context, document hash, failed *error) func(certificate.Attestation, certificate.Seat) error {
	_, valid := s.verified.Get(document)
	n := 0
	return func(by certificate.Attestation, seat certificate.Seat) error {
		if n++; n%seatsPerTurn == 0 && !valid && *failed == nil {
			if *failed = budget.From(ctx).Yield(ctx); *failed == nil {
				*failed = ctx.Err()
			}
			_, valid = s.verified.Get(document) // another call may have checked it meanwhile
		}
		if valid || *failed != nil {
			return *failed
		}
		return by.Verify(seat)
	}
}

// note says what was checked, or which checks failed and then what the other members claim.
func (a *SubmittedReport) note(report verification.Report, claim string) string {
	if a.Valid {
		note := "the document's signature, form and inclusion in the log were checked; check them yourself with the published keys"
		for _, claim := range report.Claims {
			if claim.Status == verification.NotProven {
				why, _, _ := strings.Cut(claim.Detail, "; ") // what follows names options of fairpactctl
				note += ". Not proven, " + claim.Claim + ": " + why
			}
		}
		return note
	}
	var why []string
	if a.Stored == StoredSame && a.Checks.Signature && !report.Holds(verification.MerkleInclusion) {
		why = append(why, "the signed part equals the stored one, but the document's log_proof is altered or damaged")
	}
	for _, f := range a.Findings {
		if !f.OK {
			why = append(why, f.Name+": "+f.Detail)
		}
	}
	return "do not rely on this document: " + strings.Join(append(why, claim), "; ")
}

// headOf returns the published tree head of a size, or nil if there is none.
func (s *Service) headOf(ctx context.Context, size int64) (*translog.TreeHead, error) {
	if size <= 0 {
		return nil, nil
	}
	head, err := s.log.TreeHeadAt(ctx, size)
	switch {
	case errors.Is(err, translog.ErrNotFound), errors.Is(err, translog.ErrRefused): // ErrRefused: the size is above 2^53-1
		return nil, nil
	case err != nil:
		return nil, logTrouble(err)
	}
	return &head, nil
}

// compare ignores the proof, which differs from read to read. It does not say which members differ:
// otherwise the holder of a redacted certificate could guess the redacted members one by one.
func compare(signature any, signed []byte, stored *store.Certificate) string {
	switch {
	case stored == nil:
		return StoredUnknown
	case signature == *stored.Signature && len(signed) == stored.Size && certificate.Entry(signed) == stored.Entry():
		return StoredSame
	}
	return StoredDiffers
}

func summaryOf(p certificate.Payload) *CertificateSummary {
	summary := &CertificateSummary{DealID: cut(p.DealID), Algorithm: cut(p.Algorithm), Outcome: p.Outcome, Parties: len(p.Parties), Labels: []string{}, Result: p.Result}
	for _, party := range p.Parties[:min(mostParties, len(p.Parties))] {
		summary.Labels = append(summary.Labels, cut(party.Label))
	}
	summary.VoidFlakers = p.VoidFlakers[:min(mostParties, len(p.VoidFlakers))]
	if len(summary.Result) > longestResult {
		summary.Result = nil
	}
	return summary
}

func cut(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText], "") + "…"
}
