package escrow

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// Entropy draws a random.v1 deal: the service fetches the declared beacon
// round itself, pins it and computes (SPEC 4 rule 2).
func (s *Service) Entropy(ctx context.Context, a Access) (idempotency.Response, error) {
	for range attempts {
		st, err := s.settle(ctx, a.deal)
		if err != nil {
			return idempotency.Response{}, err
		}
		d := s.standing(a.deal, st)
		if err := s.notYet(a.deal, d, st.Now); err != nil {
			return idempotency.Response{}, err
		}
		if d.Ended() {
			return respond(200, struct {
				DealID        string          `json:"deal_id"`
				State         deal.State      `json:"state"`
				Result        json.RawMessage `json:"result"`
				CertificateID *string         `json:"certificate_id"`
			}{a.deal.DealID, d.State(), st.Result, published(st)})
		}
		if err := s.draw(ctx, a.deal); err != nil {
			return idempotency.Response{}, err
		}
	}
	return idempotency.Response{}, problem.New(problem.Internal, "the draw did not settle; call again")
}

func (s *Service) notYet(d *declaration, now deal.Deal, at int64) error {
	r := now.Entropy(at)
	if r == nil {
		return nil
	}
	err := problem.New(problem.Code(r.Code), "%s", r.Fix)
	if err.Code == problem.BeaconNotReady {
		err.RetryAfter = time.Duration(min(*d.RoundTime-at, 86_400)) * time.Second
	}
	return err
}

// draw pins the deal's beacon round and ends the deal with it.
func (s *Service) draw(ctx context.Context, d *declaration) error {
	drawn, err := s.pin(ctx, d)
	if err != nil {
		return err
	}
	err = s.take(ctx, d, deal.Draw, drawn)
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

// pin gives the deal's round from the store, or else from a relay; a verified
// round is kept for ever.
func (s *Service) pin(ctx context.Context, d *declaration) (*algorithm.Beacon, error) {
	drawn := &algorithm.Beacon{ChainHash: *d.ChainHash, Round: *d.BeaconRound}
	chain := s.beacon.Chain()
	if chain.Hash != drawn.ChainHash {
		return nil, problem.New(problem.BeaconUnavailable, "the deal's beacon chain %s is not the one this deployment asks (%s); ask its operator", drawn.ChainHash, chain.Hash)
	}
	var err error
	drawn.Randomness, drawn.Signature, err = s.store.Round(ctx, drawn.ChainHash, drawn.Round)
	switch {
	case err == nil && verifies(chain, drawn): // a row of the table is not trusted
		return drawn, nil
	case err == nil:
		s.logger.ErrorContext(ctx, "a kept beacon round does not verify", "round", drawn.Round)
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	round, err := s.beacon.Fetch(ctx, drawn.Round)
	switch {
	case errors.Is(err, beacon.ErrNotYet):
		p := problem.New(problem.BeaconNotReady, "beacon round %d was due at %d and no relay has it yet; call again in a few seconds", drawn.Round, *d.RoundTime)
		p.RetryAfter = 3 * time.Second
		return nil, p
	case err != nil:
		s.logger.WarnContext(ctx, "beacon out of reach", "round", drawn.Round, "error", err.Error())
		return nil, problem.New(problem.BeaconUnavailable, "no relay gave a verified value of beacon round %d; nothing changed: call again in a few seconds", drawn.Round).Because(err)
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
