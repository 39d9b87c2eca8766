package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
)

// Commitment is what a party commits to. Key and Signature are those of its seat key;
// both are empty where it commits by its invite token alone.
type Commitment struct {
	Hash      [32]byte
	Key       string // es256:HEX or ed25519:HEX
	Signature string // by Key, of the bytes that Seat returns
}

// noOrigin refuses seat keys of a deployment that cannot say what they sign for.
func (s *Service) noOrigin() error {
	return problem.New(problem.InvalidRequest, "this deployment has not set its public address, which a seat key signs: leave out party_keys, party_key and party_signature, or ask its operator to set FAIRPACT_PUBLIC_URL")
}

// checkSeatKeys returns why the keys that a creation declares cannot be used.
func (s *Service) checkSeatKeys(keys []*string, parties int) error {
	if keys == nil {
		return nil
	}
	if len(keys) != parties {
		return problem.New(problem.InvalidParams, "party_keys has %d entries for %d parties; send one for each party, null where it has none", len(keys), parties)
	}
	for i, key := range keys {
		switch {
		case key == nil:
			continue
		case s.options.PublicURL == "":
			return s.noOrigin()
		}
		if err := signing.CheckLabel(*key); err != nil {
			return problem.New(problem.InvalidParams, "party_keys[%d] is not a public key: %s", i, err)
		}
	}
	return nil
}

// attest checks who commits, and returns what the certificate will say of it; nil
// where the party commits by its invite token alone.
func (s *Service) attest(a Access, c Commitment) (*string, error) {
	declared := a.deal.SeatKey(a.party)
	switch {
	case declared != nil && c.Key != *declared:
		return nil, problem.New(problem.SeatKeyRequired, "party %d has the declared key %s, and only a commitment that it signs is taken: sign the bytes of %s with it and send party_key and party_signature", a.party, *declared, a.call(problem.ReadDeclaration))
	case c.Key == "":
		return nil, nil
	case s.options.PublicURL == "":
		return nil, s.noOrigin()
	}
	if err := signing.CheckLabel(c.Key); err != nil {
		return nil, problem.New(problem.InvalidRequest, "party_key is not a public key: %s", err)
	}
	seat, err := a.Seat(store.CommitmentText(c.Hash[:]))
	if err != nil {
		return nil, err
	}
	by := attestation.Attestation{Declared: declared != nil, Key: c.Key, Signature: c.Signature, Origin: s.options.PublicURL}
	if err := by.Verify(seat, signing.VerifyLabel); err != nil {
		return nil, problem.New(problem.InvalidPartySignature, "party_signature is not one of party_key over these bytes, in which every line ends with a line feed (%s): %q", err, seat.Message(by.Origin))
	}
	text := by.String()
	return &text, nil
}

// attested returns what the certificate says of who made a party's commitment.
func (d *Deal) attested(party int, stored *string) string {
	switch declared := d.SeatKey(party); {
	case stored != nil:
		return *stored
	case declared != nil: // it signed nothing
		return attestation.Attestation{Declared: true, Key: *declared}.String()
	}
	return certificate.AttestedByInitiator
}

// Seat is the seat of the party that has access, with a commitment.
func (a Access) Seat(commitment string) (attestation.Seat, error) {
	digest, err := a.deal.digest()
	return attestation.Seat{DealID: a.deal.DealID, Party: a.party, Commitment: commitment, Declaration: digest}, err
}

// ToSign returns the bytes that the party's seat key signs to make a commitment; nil
// where this deployment takes no seat keys.
func (s *Service) ToSign(a Access, commitment string) ([]byte, error) {
	seat, err := a.Seat(commitment)
	if err != nil || s.options.PublicURL == "" || a.party < 0 {
		return nil, err
	}
	return seat.Message(s.options.PublicURL), nil
}

// declaration returns the RFC 8785 form of what was declared.
func (d *Deal) declaration() ([]byte, error) {
	params, err := canon.ParseObject(d.Params) // as declared: d.params holds only what the algorithm knows
	if err != nil {
		return nil, fmt.Errorf("stored params: deal %s: %w", d.DealID, err)
	}
	return attestation.Declaration{
		Algorithm: d.Algorithm, Params: params, BeaconChain: d.ChainHash, CommitDeadline: d.CommitDeadline, Mode: d.Mode,
		PartyKeys: d.SeatKeys, PartyLabels: d.Labels, Retention: d.Retention, RevealDeadline: d.RevealDeadline,
	}.Bytes(), nil
}

// digest returns the digest of what was declared. It is made once.
func (d *Deal) digest() (string, error) {
	d.declared.once.Do(func() {
		var text []byte
		text, d.declared.err = d.declaration()
		d.declared.digest = attestation.Digest(text)
	})
	return d.declared.digest, d.declared.err
}

// Declaration is what a deal declares, and who has vouched for which commitment.
type Declaration struct {
	DealID     string
	Party      int      // that asks; -1: the initiator's API key
	Origin     string   // that seat keys sign for; "": this deployment takes none
	Digest     string   // of Declared
	Declared   []byte   // RFC 8785
	AttestedBy []string // one a party, as the certificate would say it now
}

// Declaration returns what a party should read before it commits.
func (s *Service) Declaration(ctx context.Context, a Access) (Declaration, error) {
	now, err := s.advance(ctx, a.deal, store.Attested(len(a.deal.Labels)))
	if err != nil {
		return Declaration{}, err
	}
	d := Declaration{DealID: a.deal.DealID, Party: a.party, Origin: s.options.PublicURL, AttestedBy: make([]string, len(a.deal.Labels))}
	if err := a.deal.turn(ctx); err != nil {
		return Declaration{}, err
	}
	if d.Declared, err = a.deal.declaration(); err != nil {
		return Declaration{}, err
	}
	d.Digest = attestation.Digest(d.Declared)
	if len(now.AttestedBy) != len(d.AttestedBy) {
		return Declaration{}, fmt.Errorf("deal %s has %d parties and %d in the store", a.deal.DealID, len(d.AttestedBy), len(now.AttestedBy))
	}
	for i, stored := range now.AttestedBy {
		d.AttestedBy[i] = a.deal.attested(i, stored)
	}
	return d, nil
}

// late returns why the deal takes no commitment of the party any more, else err: late
// or in the wrong state comes before what is wrong with a commitment.
func (s *Service) late(ctx context.Context, a Access, err error) error {
	if _, refused := errors.AsType[*problem.Error](err); !refused {
		return err
	}
	if late := s.refused(ctx, a, deal.Deal.Commit); late != nil {
		return late
	}
	return err
}
