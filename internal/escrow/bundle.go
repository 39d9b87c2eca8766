package escrow

import (
	"context"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// Bundle is a certificate with what verifies it offline. Data that does not exist is nil.
type Bundle struct {
	Issued
	TLogProof   []byte // the inclusion proof as a .tlog-proof file (c2sp.org/tlog-proof)
	Keys        []byte // the response body of GET /v1/pubkeys
	Declaration []byte
	Chain       *beacon.Chain // the beacon chain of a random.v1 result
	// Own is the proof for the caller's input. It is nil if the caller did not reveal, or if
	// the proof needs inputs that were deleted (retention "purge").
	Own *OwnInput
}

// OwnInput proves that a party's input is in input_root. It contains neither the input nor
// the salt: the initiator got all invite tokens, and could otherwise read every party's input.
type OwnInput struct {
	Party int      `json:"party"`
	Path  []string `json:"input_path,omitzero"` // nil if any party did not reveal: the certificate then has no input_root
}

// Bundle returns a deal's bundle for the calling party, or an error of Service.Certificate.
func (s *Service) Bundle(ctx context.Context, a Access) (Bundle, error) {
	issued, err := s.Certificate(ctx, a)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{Issued: issued, Keys: s.keys.Published()}
	limits.ReleaseSlot(ctx)
	if b.TLogProof, err = s.log.TLogProof(ctx, certificate.Entry(issued.Payload), issued.Proof.LeafIndex); err != nil {
		return Bundle{}, logTrouble(err)
	}
	if chain := s.beacon.Chain(); issued.Outcome == certificate.Computed && a.deal.RoundTime != nil && a.deal.ChainHash != nil && *a.deal.ChainHash == chain.Hash {
		b.Chain = &chain
	}
	// Acquire a slot even if the declaration is small: ownInput may read large inputs.
	if err := limits.AcquireSlot(ctx); err != nil {
		return Bundle{}, err
	}
	if b.Declaration, err = a.deal.Canonical(); err != nil {
		return Bundle{}, err
	}
	b.Own, err = s.ownInput(ctx, a)
	return b, err
}

func (s *Service) ownInput(ctx context.Context, a Access) (*OwnInput, error) {
	now, err := s.store.Snapshot(ctx, a.deal.DealID, store.OneParty(a.party))
	if err != nil || !partyStatus(now, a.party).Revealed {
		return nil, err
	}
	if now.Reveals < len(a.deal.Labels) {
		return &OwnInput{Party: a.party}, nil
	}
	if a.deal.Retention == "purge" {
		return nil, nil
	}
	if now, err = s.store.Snapshot(ctx, a.deal.DealID, store.WithInputs); err != nil {
		return nil, err
	}
	inputs, err := s.inputs(a.deal, now.Sealed)
	if err != nil {
		return nil, err
	}
	return &OwnInput{a.party, certificate.InputPath(leavesOf(inputs), a.party)}, nil
}
