package escrow

import (
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Bundle is a certificate with all that it takes to verify it without the service.
// What does not exist is nil.
type Bundle struct {
	Issued
	TLogProof []byte        // a .tlog-proof file
	Keys      []byte        // the answer of GET /v1/pubkeys
	Chain     *beacon.Chain // that the result was drawn from
	Own       *OwnInput     // of the party that asks, where it was revealed and not purged
}

// OwnInput is a party's own input and where it is in input_root.
type OwnInput struct {
	Party int
	OpenInput
	Path []string // nil where not all have revealed, so that there is no input_root
}

// Bundle returns a deal's bundle for one of its parties.
func (s *Service) Bundle(ctx context.Context, a Access) (Bundle, error) {
	issued, err := s.Certificate(ctx, a)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{Issued: issued, Keys: s.keys.Published()}
	if b.TLogProof, err = s.log.TLogProof(ctx, certificate.Entry(issued.Payload), issued.Proof.LeafIndex); err != nil {
		return Bundle{}, logTrouble(err)
	}
	if chain := s.beacon.Chain(); issued.Outcome == certificate.Computed && a.deal.RoundTime != nil && a.deal.ChainHash != nil && *a.deal.ChainHash == chain.Hash {
		b.Chain = &chain
	}
	if err := a.deal.turn(ctx); err != nil {
		return Bundle{}, err
	}
	b.Own, err = s.ownInput(ctx, a)
	return b, err
}

func (s *Service) ownInput(ctx context.Context, a Access) (*OwnInput, error) {
	now, err := s.store.Snapshot(ctx, a.deal.DealID, store.WithInputs)
	if err != nil || !now.Parts[a.party].Revealed {
		return nil, err
	}
	var inputs []sealing.Input // of those that have revealed, in party order
	own := 0
	for i, part := range now.Parts {
		if !part.Revealed {
			continue
		}
		if len(inputs) >= len(now.Sealed) {
			return nil, fmt.Errorf("deal %s has fewer inputs than reveals", a.deal.DealID)
		}
		sealed := now.Sealed[len(inputs)]
		if sealed == nil {
			return nil, nil // purged
		}
		if i == a.party {
			own = len(inputs)
		}
		in, err := s.secret.OpenInput(a.deal.DealID, i, sealed)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	mine := &OwnInput{Party: a.party, OpenInput: OpenInput{inputs[own].Canonical, inputs[own].Salt}}
	if len(inputs) == len(now.Parts) {
		mine.Path = certificate.InputPath(leavesOf(inputs), own)
	}
	return mine, nil
}
