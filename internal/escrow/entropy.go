package escrow

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Drawn is the answer to Entropy, the draw of a random.v1 deal.
type Drawn struct {
	DealID        string          `json:"deal_id"`
	State         deal.State      `json:"state"`
	Result        json.RawMessage `json:"result"`
	CertificateID *string         `json:"certificate_id"` // nil until the certificate is published
}

// Entropy draws a random.v1 deal (SPEC 4 rule 2). Later calls return the same result.
func (s *Service) Entropy(ctx context.Context, a Access) (Drawn, error) {
	for range attempts {
		now, err := s.advance(ctx, a, store.NoParties)
		if err != nil {
			return Drawn{}, err
		}
		rules := s.rules(a.deal, now)
		if refusal := rules.Entropy(now.Now); refusal != nil {
			return Drawn{}, refusal
		}
		if !rules.Ended() {
			now, err = s.endDeal(ctx, a.deal, deal.Draw, nil)
		}
		if errors.Is(err, errDealChanged) {
			continue
		}
		if err != nil {
			return Drawn{}, err
		}
		return Drawn{a.deal.DealID, s.rules(a.deal, now).State(), now.Result, publishedID(now)}, nil
	}
	return Drawn{}, fmt.Errorf("deal %s changed during the draw, %d times in a row", a.deal.DealID, attempts)
}

// pinnedRound returns the deal's stored beacon round. If the row is missing or invalid, it fetches the
// round from a relay, and stores it if the row was missing. It never replaces a row.
func (s *Service) pinnedRound(ctx context.Context, d *Deal) (*algorithm.Beacon, error) {
	drawn := &algorithm.Beacon{ChainHash: *d.ChainHash, Round: *d.BeaconRound}
	chain := s.beacon.Chain()
	if chain.Hash != drawn.ChainHash {
		return nil, problem.New(problem.BeaconUnavailable, "the deal's beacon chain %s is not the chain that this deployment uses (%s); tell the operator of this deployment", drawn.ChainHash, chain.Hash)
	}
	var err error
	drawn.Randomness, drawn.Signature, err = s.store.Round(ctx, drawn.ChainHash, drawn.Round)
	switch {
	case err == nil && verifies(chain, drawn): // verified again: somebody may have changed the row
		return drawn, nil
	case err == nil:
		s.logger.ErrorContext(ctx, "stored beacon round does not verify, fetching it again", "chain", drawn.ChainHash, "round", drawn.Round)
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	round, err := s.beacon.Fetch(ctx, drawn.Round)
	switch {
	case errors.Is(err, beacon.ErrNotYet):
		return nil, problem.New(problem.BeaconNotReady, "beacon round %d was due at %d and no relay has published it yet; call again in a few seconds", drawn.Round, *d.RoundTime).WithRetryAfter(3)
	case err != nil:
		return nil, problem.New(problem.BeaconUnavailable, "no relay returned a verified value of beacon round %d; nothing changed: call again in a few seconds", drawn.Round).WithCause(err)
	}
	drawn.Randomness, drawn.Signature = round.Randomness, round.Signature
	return drawn, s.store.PutRound(ctx, drawn.ChainHash, drawn.Round, drawn.Randomness, drawn.Signature)
}

func verifies(chain beacon.Chain, drawn *algorithm.Beacon) bool {
	signature, err := hex.DecodeString(drawn.Signature)
	if err != nil {
		return false
	}
	randomness, err := chain.Verify(drawn.Round, signature)
	return err == nil && hex.EncodeToString(randomness[:]) == drawn.Randomness
}
