package escrow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Committed is the answer to Service.Commit.
type Committed struct {
	DealID    string     `json:"deal_id"`
	State     deal.State `json:"state"`
	Party     int        `json:"party"`
	Committed bool       `json:"committed"` // always true
	Receipt   *Receipt   `json:"receipt,omitempty"`
	OpensAt   int64      `json:"opens_at,omitempty"` // when the round of the party's seal is due; 0: it did not seal
}

// Commit stores a party's commitment (SPEC 4), which a declared seat key MUST have signed, and its
// seal.
func (s *Service) Commit(ctx context.Context, a Access, c Commitment, rec *Record) (Committed, error) {
	if _, again := s.acts.Get(a.seat()); again { // it can only be refused, which needs no lock on the deal
		if err := s.checkRule(ctx, a, deal.Deal.Commit); err != nil {
			return Committed{}, err
		}
	}
	attestedBy, err := s.attest(a, c)
	if err != nil {
		return Committed{}, s.lateFirst(ctx, a, deal.Deal.Commit, err)
	}
	act := store.Act{DealID: a.deal.DealID, Party: a.party, Commitment: c.Hash, AttestedBy: attestedBy, Replay: rec.Replay()}
	if err := s.attachSeal(ctx, &act, a, c.Seal); err != nil {
		return Committed{}, s.lateFirst(ctx, a, deal.Deal.Commit, err)
	}
	var stored store.ActResult
	for tries := 1; !stored.Done; tries++ {
		act.First = int(a.deal.firstUncommitted.Load())
		if stored, err = s.store.Commit(ctx, act); err == nil && !stored.Done {
			err = s.refusal(ctx, a, deal.Deal.Commit, tries)
		}
		if err != nil {
			return Committed{}, err
		}
	}
	crash.Point("escrow.committed")
	s.options.Waits.Notify(a.deal.DealID)
	s.noteAct(a, acted{commitment: c.Hash})
	answer := Committed{DealID: a.deal.DealID, State: deal.Revealing, Party: a.party, Committed: true}
	if !stored.All {
		raise(&a.deal.firstUncommitted, stored.Missing)
		answer.State = deal.Committing
	}
	if stored.All && stored.SealTime != nil {
		s.tryClose(ctx, a.deal)
	}
	if act.Seal != nil {
		s.addReceipt(ctx, a, &answer, c.Hash, act.Seal.Hash, stored.At)
	}
	return answer, nil
}

// StoredCommit answers a repeated commit whose first call stored the commitment but no answer. It
// shows the deal's present state.
func (s *Service) StoredCommit(ctx context.Context, a Access) (Committed, error) {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return Committed{}, err
	}
	answer := Committed{DealID: a.deal.DealID, State: s.rules(a.deal, now).State(), Party: a.party, Committed: true}
	seals, err := s.store.Seals(ctx, a.deal.DealID, a.party, a.party)
	if err != nil || len(seals) == 0 {
		return answer, err
	}
	commitment, err := s.commitmentOf(ctx, a)
	if err == nil {
		s.addReceipt(ctx, a, &answer, commitment, [32]byte(seals[0].Hash), seals[0].At)
	}
	return answer, err
}

// Cancelled is the answer to Service.Cancel.
type Cancelled struct {
	DealID string     `json:"deal_id"`
	State  deal.State `json:"state"`
}

// Cancel ends an active deal if no counterparty has committed (SPEC 3), or returns CANNOT_CANCEL.
func (s *Service) Cancel(ctx context.Context, a Access, rec *Record) (Cancelled, error) {
	answer := a.StoredCancel()
	replay, err := rec.ReplayWith(answer)
	if err != nil {
		return Cancelled{}, err
	}
	rule := func(d deal.Deal, p deal.Party, _ int64) *problem.Error { return d.Cancel(p.Committed) }
	a.party = 0 // the initiator's party index: the rule needs to know whether the initiator has committed
	// The statement waits for the deal's lock on a connection of its own, so it runs only if it can succeed.
	if err := s.checkRule(ctx, a, rule); err != nil {
		return Cancelled{}, err
	}
	for tries, done := 1, false; !done; tries++ {
		if done, err = s.store.Cancel(ctx, a.deal.DealID, replay); err == nil && !done {
			err = s.refusal(ctx, a, rule, tries)
		}
		if err != nil {
			return Cancelled{}, err
		}
	}
	s.noteEnd(ctx, &store.Ending{DealID: a.deal.DealID, To: deal.Cancelled})
	return answer, nil
}

// StoredCancel answers a cancel of the deal that is stored.
func (a Access) StoredCancel() Cancelled { return Cancelled{a.deal.DealID, deal.Cancelled} }

// Commitment is the hash that a party commits to, and its seat key's signature, if the party signs.
type Commitment struct {
	Hash      [32]byte
	Key       string // the party's public key (seat key): es256:HEX or ed25519:HEX
	Signature string // verifies under Key for the bytes that Service.ToSign returns
	Seal      string // the party's opening, sealed for the round of the deal's seals; "": none
}

var errNoOrigin = problem.New(problem.InvalidRequest, "this deployment accepts no seat keys, because it has no public address for them to sign: leave out party_keys, party_key and party_signature, or ask its operator to set FAIRPACT_PUBLIC_URL")

// checkSeatKeys checks party_keys: nil, or one entry for each party, nil for a party without a key.
func (s *Service) checkSeatKeys(seats []*string, parties int) error {
	if seats == nil {
		return nil
	}
	if len(seats) != parties {
		return problem.New(problem.InvalidParams, "party_keys has %d entries for %d parties; send one for each party, null for a party without a key", len(seats), parties)
	}
	for i, key := range seats {
		switch {
		case key == nil:
			continue
		case s.options.PublicURL == "":
			return errNoOrigin
		}
		if err := keys.Check(*key); err != nil {
			return problem.New(problem.InvalidParams, "party_keys[%d] is not a public key: %s", i, err)
		}
	}
	return nil
}

// attest checks the seat key's signature of a commitment, and returns attested_by for the certificate.
// It returns nil if the party commits with its invite token only.
func (s *Service) attest(a Access, c Commitment) (*string, error) {
	declared := a.deal.SeatKey(a.party)
	switch {
	case declared != nil && c.Key != *declared:
		return nil, problem.New(problem.SeatKeyRequired, "party %d has the declared key %s, which must sign the commitment: call %s for the values to sign, sign them with this key, and send party_key and party_signature", a.party, *declared, a.call(problem.ReadDeclaration))
	case c.Key == "":
		return nil, nil
	case s.options.PublicURL == "":
		return nil, errNoOrigin
	}
	if err := keys.Check(c.Key); err != nil {
		return nil, problem.New(problem.InvalidRequest, "party_key is not a public key: %s", err)
	}
	seat, err := a.signedSeat(store.CommitmentText(c.Hash[:]))
	if err != nil {
		return nil, err
	}
	by := certificate.Attestation{Declared: declared != nil, Key: c.Key, Signature: c.Signature, Origin: s.options.PublicURL}
	if err := by.Verify(seat); err != nil {
		return nil, problem.New(problem.InvalidPartySignature, "party_signature does not verify under party_key (%s): sign exactly these bytes, in which every line ends with a line feed: %q", err, seat.Message(by.Origin))
	}
	text := by.String()
	return &text, nil
}

func (a Access) signedSeat(commitment string) (certificate.Seat, error) {
	digest, err := a.deal.digest()
	return certificate.Seat{DealID: a.deal.DealID, Party: a.party, Commitment: commitment, Declaration: digest}, err
}

// ToSign returns the bytes that a seat key signs to commit. It returns nil if the caller is not a party,
// or this deployment accepts no seat keys.
func (s *Service) ToSign(a Access, commitment string) ([]byte, error) {
	seat, err := a.signedSeat(commitment)
	if err != nil || s.options.PublicURL == "" || a.party < 0 {
		return nil, err
	}
	return seat.Message(s.options.PublicURL), nil
}

// Declaration is what a caller sees of a deal's terms, and each party's attested_by.
type Declaration struct {
	DealID     string          `json:"deal_id"`
	Party      *int            `json:"party"`  // the caller's party index; nil: the caller used the initiator's API key
	Origin     *string         `json:"origin"` // the deployment's web origin, which seat keys sign; nil: no seat keys are accepted
	Digest     string          `json:"declaration_sha256"`
	Declared   json.RawMessage `json:"declaration"` // canonical JSON (RFC 8785)
	AttestedBy []string        `json:"attested_by"` // in party order, as in a certificate issued now
	Seals      *Seals          `json:"seals,omitempty"`
}

// HasDeclaration returns the error of Declaration.
func (s *Service) HasDeclaration(_ context.Context, a Access) error {
	if a.deal.ContentsDeleted {
		return problem.New(problem.DealEnded, "the deal has ended, and this service has deleted its params, and so its declaration; read the outcome with %s", a.call(problem.ReadDeal))
	}
	return nil
}

// Declaration returns the terms of the deal, which a party should read before it commits, and each
// party's present attested_by.
func (s *Service) Declaration(ctx context.Context, a Access) (Declaration, error) {
	if err := s.HasDeclaration(ctx, a); err != nil {
		return Declaration{}, err
	}
	if err := hold(ctx, a.deal.DeclarationBytes()); err != nil {
		return Declaration{}, err
	}
	now, err := s.advance(ctx, a, store.Attested(len(a.deal.Labels)))
	if err != nil {
		return Declaration{}, err
	}
	d := Declaration{DealID: a.deal.DealID, AttestedBy: make([]string, len(a.deal.Labels))}
	if a.party >= 0 {
		d.Party = &a.party
	}
	if s.options.PublicURL != "" {
		d.Origin = &s.options.PublicURL
	}
	if err := budget.From(ctx).Turn(ctx); err != nil {
		return Declaration{}, err
	}
	if d.Declared, err = a.deal.Canonical(); err != nil {
		return Declaration{}, err
	}
	d.Digest = certificate.DeclarationDigest(d.Declared)
	if len(now.AttestedBy) != len(d.AttestedBy) {
		return Declaration{}, fmt.Errorf("the store returned the wrong number of parties: deal %s declares %d, the store returned %d", a.deal.DealID, len(d.AttestedBy), len(now.AttestedBy))
	}
	for i, stored := range now.AttestedBy {
		d.AttestedBy[i] = a.deal.attested(i, stored)
	}
	d.Seals, err = s.seals(ctx, a.deal)
	return d, err
}
