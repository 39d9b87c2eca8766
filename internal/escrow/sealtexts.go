package escrow

import (
	"context"
	"encoding/hex"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// SealTexts are the commitments and seals of a deal. After their beacon round anyone computes the result
// from them and the declaration, without the service.
type SealTexts struct {
	DealID string     `json:"deal_id"`
	Seals  []SealText `json:"seals"` // in party order
}

// SealText is the commitment of a party and its seal. Hash and Seal are nil if the party did not seal.
type SealText struct {
	Party      int     `json:"party"`
	Commitment string  `json:"commitment"`
	Hash       *string `json:"seal_hash"` // SHA-256 of the seal
	Seal       *string `json:"seal"`      // also nil once the seal is opened, or no longer needed: the service deletes it
}

// HasSealTexts returns the error of SealTexts, without reading a seal.
func (s *Service) HasSealTexts(ctx context.Context, a Access) error {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return err
	}
	switch {
	case a.deal.Mode != "open":
		return problem.New(problem.InputsSealed, "the deal has mode %s, and only a deal of mode open gives its seals to all parties: each party keeps its own seal and receipt", a.deal.Mode)
	case now.Ended():
		return problem.New(problem.DealEnded, "the deal is %s, and the service has deleted its seals; read the outcome with %s", s.rules(a.deal, now).State(), a.call(problem.ReadDeal))
	case now.Phase != deal.Revealing:
		return problem.New(problem.CommitsMissing, "%d of %d parties have committed; call again once the state is REVEALING", now.Commits, len(a.deal.Labels))
	}
	return nil
}

// SealTexts returns the seals of a deal of mode open to its parties, from the last commitment until the end
// of the deal. Nobody can read them before their round.
func (s *Service) SealTexts(ctx context.Context, a Access) (all SealTexts, err error) {
	if err := s.HasSealTexts(ctx, a); err != nil {
		return all, err
	}
	if err := budget.From(ctx).Hold(ctx, budget.MaxSmall); err != nil {
		return all, err
	}
	bytes, err := s.store.SealBytes(ctx, a.deal.DealID, len(a.deal.Labels))
	if err != nil {
		return all, err
	}
	if n := store.ClosingParty*len(a.deal.Labels) + sealCopies*bytes; n > store.SmallRead {
		if err := budget.From(ctx).Hold(ctx, int64(n)); err != nil {
			return all, err
		}
	}
	stored, err := s.store.Closing(ctx, a.deal.DealID, len(a.deal.Labels))
	if err != nil {
		return all, err
	}
	all = SealTexts{a.deal.DealID, make([]SealText, len(stored.Commitments))}
	for i, commitment := range stored.Commitments {
		all.Seals[i] = SealText{Party: i, Commitment: store.CommitmentText(commitment)}
		if hash := stored.Seals[i]; hash != nil {
			all.Seals[i].Hash = new(hex.EncodeToString(hash))
		}
	}
	return all, s.store.EachSeal(ctx, a.deal.DealID, bytes, func(party int, sealed []byte) error {
		text, err := s.secrets.DecryptSeal(a.deal.DealID, party, sealed)
		if err != nil {
			return inputLost("read a stored seal", err)
		}
		all.Seals[party].Seal = new(string(text))
		return nil
	})
}
