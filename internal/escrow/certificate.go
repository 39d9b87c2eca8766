package escrow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

// Issued is a signed certificate with its proof of inclusion in the log.
type Issued struct {
	CertID    string
	Outcome   string
	Payload   []byte // the bytes that Signature covers, in RFC 8785 form
	Signature string
	Proof     certificate.LogProof
	Head      translog.TreeHead // the tree head against which Proof verifies
}

// Certificate returns a deal's certificate with a proof against the newest published tree head. Every
// read returns the same bytes, except for the proof. Its errors are CERT_NOT_READY (not published
// yet), NO_CERTIFICATE (the deal ended without one), LOG_INCONSISTENT (the certificate or its proof
// does not verify, or the log has another certificate of the deal) and LOG_UNAVAILABLE.
func (s *Service) Certificate(ctx context.Context, a Access) (Issued, error) {
	if err := budget.From(ctx).Hold(ctx, budget.MaxSmall); err != nil {
		return Issued{}, err
	}
	c, err := s.store.CertificateOf(ctx, a.deal.DealID)
	if errors.Is(err, store.ErrNotFound) {
		c, err = s.certificateAfterSteps(ctx, a)
	}
	if err == nil && c.LeafIndex == nil {
		c, err = s.issuePending(ctx, c)
	}
	if err != nil {
		return Issued{}, err
	}
	i, err := s.inspect(ctx, c, nil)
	if err != nil {
		return Issued{}, err
	}
	if i.Valid && i.dealID != a.deal.DealID {
		i.add(verification.Consistency, fmt.Errorf("the row of certificate %s of deal %s contains a certificate of deal %s", c.CertID, a.deal.DealID, i.dealID))
	}
	if !i.Valid {
		return Issued{}, i.cause
	}
	a.deal.certTag.Store(new(`W/"` + web.Tag(c.Payload) + `"`))
	return Issued{c.CertID, i.outcome, c.Payload, *c.Signature, i.proof, i.head}, nil
}

// CertificateTag returns the weak ETag of the deal's published certificate, or "" if this process has not read
// it. It does not cover the proof, which differs from read to read.
func (d *Deal) CertificateTag() string {
	if tag := d.certTag.Load(); tag != nil {
		return *tag
	}
	return ""
}

// HasCertificate returns the error of Certificate. It neither reads nor verifies a published certificate.
func (s *Service) HasCertificate(ctx context.Context, a Access) error {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil || now.Published {
		return err
	}
	_, err = s.Certificate(ctx, a)
	return err
}

// errDrawable is the cause of CERT_NOT_READY from the beacon round's time until the worker draws, unless it draws at once (deal.Deal.DrawsAtOnce).
var errDrawable = errors.New("the deal can be drawn")

func (s *Service) certificateAfterSteps(ctx context.Context, a Access) (*store.Certificate, error) {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return nil, err
	}
	rules := s.rules(a.deal, now)
	switch {
	case now.CertID != nil:
		return s.store.CertificateOf(ctx, a.deal.DealID)
	case rules.Ended():
		return nil, problem.New(problem.NoCertificate, "the deal is %s and never gets a certificate; create a new deal with %s", rules.State(), problem.Call{Op: problem.CreateDeal})
	case rules.Random() && rules.AllRevealed() && now.Now >= *rules.RoundTime:
		const published = "all have revealed and the beacon round is published"
		left := rules.DrawAt() - now.Now
		if rules.DrawsAtOnce() && left > -deal.DrawDelay && !s.options.ReadOnly {
			return nil, problem.New(problem.CertNotReady, published+"; the service draws now: call again in a few seconds, or draw with %s", a.call(problem.Draw)).WithRetryAfter(2)
		}
		if left > 0 && !s.options.ReadOnly {
			return nil, problem.New(problem.CertNotReady, published+"; the service draws in %d s: to have the result now, draw with %s", left, a.call(problem.Draw)).WithRetryAfter(left).WithCause(errDrawable)
		}
		return nil, problem.New(problem.CertNotReady, published+"; draw with %s", a.call(problem.Draw)).WithRetryAfter(15) // overdue, or read-only
	case rules.Random() && rules.AllRevealed():
		return nil, problem.New(problem.CertNotReady, "all have revealed, and the beacon round is due at %d (now %d); then draw with %s", *rules.RoundTime, now.Now, a.call(problem.Draw)).
			WithRetryAfter(min(*rules.RoundTime-now.Now, 86_400))
	}
	return nil, problem.New(problem.CertNotReady, "the deal is %s; its certificate is issued when the deal ends: call again with %s, or call %s until the deal has ended", rules.State(), problem.WaitLongest, a.call(problem.ReadDeal))
}

// issuePending issues a pending certificate within the call, or returns the reason why it cannot.
func (s *Service) issuePending(ctx context.Context, c *store.Certificate) (*store.Certificate, error) {
	if s.options.ReadOnly { // a signature could not be stored, so none is made
		return nil, problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: the service accepts no changes during maintenance; call again later").WithRetryAfter(10)
	}
	cause := s.tryIssue(ctx, c)
	// Read the row again: another process may have issued the certificate.
	c, err := s.store.Certificate(ctx, c.CertID)
	if err != nil || c.LeafIndex != nil {
		return c, err
	}
	if errors.Is(cause, translog.ErrTagTaken) {
		return nil, problem.New(problem.LogInconsistent, "the log has another certificate of this deal, and this service has lost that certificate: if you have a copy, send it to the operator of this deployment").WithCause(cause)
	}
	reason := "the transparency log is out of reach"
	switch {
	case errors.Is(cause, translog.ErrRefused), errors.Is(cause, translog.ErrInconsistent):
		reason = "the transparency log refused the certificate, and the operator of the log must find out why"
	case c.Signature == nil:
		reason = "the certificate is not signed yet"
	}
	return nil, problem.New(problem.CertNotReady, "the deal has ended and its certificate is pending: %s; call again in a few seconds", reason).WithRetryAfter(2)
}

// Bundle is a certificate with what verifies it offline. Data that does not exist is nil.
type Bundle struct {
	Issued
	TLogProof   []byte       // the inclusion proof as a .tlog-proof file (c2sp.org/tlog-proof)
	Keys        []byte       // the response body of GET /v1/pubkeys
	Declaration []byte       // nil, like the members below Chain, if Deal.ContentsDeleted
	Chain       *drand.Chain // the beacon chain of a random.v1 result
	Closing     *Closing     // nil if the log has no closing of the deal
	// Own is the proof for the caller's input. It is nil if the caller did not reveal, or if
	// the proof needs inputs that were deleted (retention "purge").
	Own *OwnInput
	// Openings are the inputs and salts of all parties, in party order. It is nil if the caller may not
	// see them (Service.hidden), or if they are large and the caller did not ask for them.
	Openings []Opened
}

// Opened is the input and salt of a party, without its index.
type Opened struct {
	Input json.RawMessage `json:"input"` // canonical JSON (RFC 8785)
	Salt  string          `json:"salt"`
}

// maxOpenings is the size in bytes of Bundle.Openings as JSON from which only a caller that asks gets them.
const maxOpenings = 4 << 20

// OwnInput proves that a party's input is in input_root. It contains neither the input nor
// the salt: the initiator got all invite tokens, and could otherwise read every party's input.
type OwnInput struct {
	Party int      `json:"party"`
	Path  []string `json:"input_path,omitzero"` // nil if any party did not reveal: the certificate then has no input_root
}

// Bundle returns a deal's bundle for the calling party or an audience (Access.Party is -1), or an error of Service.Certificate. With `whole`
// it has Openings of any size.
func (s *Service) Bundle(ctx context.Context, a Access, whole bool) (Bundle, error) {
	if err := hold(ctx, a.deal.BundleBytes()); err != nil {
		return Bundle{}, err
	}
	issued, err := s.Certificate(ctx, a)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{Issued: issued, Keys: s.keys.Published()}
	if b.TLogProof, err = s.log.TLogProof(ctx, certificate.Entry(issued.Payload), issued.Proof.LeafIndex, false); err != nil {
		return Bundle{}, logTrouble(err)
	}
	if chain := s.beacon.Chain(); issued.Outcome == certificate.Computed && a.deal.RoundTime != nil && a.deal.ChainHash != nil && *a.deal.ChainHash == chain.Hash {
		b.Chain = &chain
	}
	if a.deal.ContentsDeleted {
		return b, nil
	}
	seen := store.NoParties
	if a.party >= 0 {
		seen = store.OneParty(a.party)
	}
	now, err := s.store.Snapshot(ctx, a.deal.DealID, seen)
	if err == nil && now.SealTime != 0 {
		err = s.addClosing(ctx, a.deal, &b)
	}
	if err == nil {
		err = s.addInputs(ctx, a, now, &b, whole)
	}
	if err != nil {
		return Bundle{}, err
	}
	if err := budget.From(ctx).Turn(ctx); err != nil {
		return Bundle{}, err
	}
	b.Declaration, err = a.deal.Canonical()
	return b, err
}

// errEnough ends the reading of inputs that nobody is shown.
var errEnough = errors.New("the openings are too large for an audience")

// addInputs sets Own and Openings. `now` has the calling party.
func (s *Service) addInputs(ctx context.Context, a Access, now *store.Snapshot, b *Bundle, whole bool) error {
	switch {
	case a.party < 0 && !a.deal.Random(): // an audience sees only the nonces of a draw
		return nil
	case a.party >= 0 && !partyStatus(now, a.party).Revealed:
		return nil
	case a.party < 0 && now.Reveals < len(a.deal.Labels):
		return nil
	case now.Reveals < len(a.deal.Labels):
		b.Own = &OwnInput{Party: a.party}
		return nil
	case a.deal.Retention == "purge":
		return nil
	}
	shown := true
	switch err := s.hidden(ctx, a, now); {
	case problem.Is(err, problem.InputsSealed), problem.Is(err, problem.InputsNotReady):
		shown = false
	case err != nil:
		return err
	}
	now, err := s.store.Snapshot(ctx, a.deal.DealID, store.OnlyInputs(len(a.deal.Labels)))
	if err != nil {
		return err
	}
	if now.InputBytes > store.SmallRead {
		n := a.deal.BundleBytes() + store.InputsPage
		switch {
		case shown && whole:
			n += inputCopies * now.InputBytes
		case shown:
			n += inputCopies * min(now.InputBytes, maxOpenings)
		}
		if err := budget.From(ctx).Hold(ctx, int64(n)); err != nil {
			return err
		}
	}
	var tree certificate.InputTree
	bytes := 0
	err = s.eachInput(ctx, a.deal, now, nil, func(_ int, in sealing.Input) error {
		tree.Add(in.Canonical, in.SaltBytes)
		if bytes += len(in.Canonical) + len(canon.Encode(in.Salt)) + len(`{"input":,"salt":},`); bytes > maxOpenings && !whole {
			shown, b.Openings = false, nil
			if a.party < 0 {
				return errEnough
			}
		}
		if shown {
			b.Openings = append(b.Openings, Opened{in.Canonical, in.Salt})
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if a.party >= 0 {
		b.Own = &OwnInput{a.party, tree.Path(a.party)}
	}
	return nil
}
