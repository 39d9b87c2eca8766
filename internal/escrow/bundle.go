package escrow

import (
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Bundle is a certificate with all that it takes to verify it without the service.
// What does not exist is nil.
type Bundle struct {
	Issued
	TLogProof   []byte        // a .tlog-proof file
	Keys        []byte        // the answer of GET /v1/pubkeys
	Declaration []byte        // that the certificate names; those of earlier releases name none
	Chain       *beacon.Chain // that the result was drawn from
	Own         *OwnInput     // of the party that asks, where it revealed and its place can be proven
}

// OwnInput is where a party's input is in input_root. It has no place for the input
// and salt: an invite token does not prove who asks, since the initiator held all of
// them.
type OwnInput struct {
	Party int
	Path  []string // nil where not all have revealed, so that there is no input_root
}

// Bundle returns a deal's bundle for one of its parties.
func (s *Service) Bundle(ctx context.Context, a Access) (Bundle, error) {
	issued, err := s.Certificate(ctx, a)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{Issued: issued, Keys: s.keys.Published()}
	limits.Rest(ctx)
	if b.TLogProof, err = s.log.TLogProof(ctx, certificate.Entry(issued.Payload), issued.Proof.LeafIndex); err != nil {
		return Bundle{}, logTrouble(err)
	}
	if chain := s.beacon.Chain(); issued.Outcome == certificate.Computed && a.deal.RoundTime != nil && a.deal.ChainHash != nil && *a.deal.ChainHash == chain.Hash {
		b.Chain = &chain
	}
	// A turn for a small declaration too: the inputs may be large.
	if err := limits.Turn(ctx); err != nil {
		return Bundle{}, err
	}
	if issued.declaration != "" {
		if b.Declaration, err = a.deal.declaration(); err != nil {
			return Bundle{}, err
		}
	}
	b.Own, err = s.ownInput(ctx, a)
	return b, err
}

func (s *Service) ownInput(ctx context.Context, a Access) (*OwnInput, error) {
	now, err := s.store.Snapshot(ctx, a.deal.DealID, store.Only(a.party))
	if err != nil || !part(now, a.party).Revealed {
		return nil, err
	}
	own := &OwnInput{Party: a.party}
	if now.Reveals < len(a.deal.Labels) {
		return own, nil
	}
	// The path takes the leaves of all, hence their inputs.
	if now, err = s.store.Snapshot(ctx, a.deal.DealID, store.WithInputs); err != nil {
		return nil, err
	}
	if len(now.Sealed) != len(a.deal.Labels) {
		return nil, fmt.Errorf("deal %s has %d inputs and %d parties", a.deal.DealID, len(now.Sealed), len(a.deal.Labels))
	}
	inputs := make([]sealing.Input, len(now.Sealed))
	for i, sealed := range now.Sealed {
		if sealed == nil {
			return nil, nil // purged
		}
		if inputs[i], err = s.secrets.OpenInput(a.deal.DealID, i, sealed); err != nil {
			return nil, unopened(err)
		}
	}
	own.Path = certificate.InputPath(leavesOf(inputs), a.party)
	return own, nil
}
