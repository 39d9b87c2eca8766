package escrow

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// advance takes the due steps of a deal except Draw, and returns the resulting snapshot. If an input
// or a seal cannot be decrypted, or the round of the seals is late, it returns the deal unchanged until
// the deal expires. Of many seals it opens only some.
func (s *Service) advance(ctx context.Context, a Access, selection store.Selection) (*store.Snapshot, error) {
	now, err := s.takeSteps(ctx, a.deal, selection)
	if errors.Is(err, store.ErrNotFound) {
		return nil, s.dealMissing(a)
	}
	if now != nil && (errors.Is(err, errInputLost) || waitsForBeacon(err)) {
		return now, nil
	}
	return now, err
}

func waitsForBeacon(err error) bool {
	return problem.Is(err, problem.BeaconUnavailable) || problem.Is(err, problem.BeaconNotReady) || errors.Is(err, beacon.ErrBusy)
}

// takeSteps is advance for deadline-worker, which logs and retries errInputLost and late rounds.
func (s *Service) takeSteps(ctx context.Context, d *Deal, selection store.Selection) (*store.Snapshot, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	opened := false
	for range 8 {
		now, err := s.store.Snapshot(ctx, d.DealID, selection)
		if err != nil {
			return nil, err
		}
		s.learnCertified(ctx, now)
		rules := s.rules(d, now)
		step := rules.Next(now.Now)
		var ended *store.Snapshot
		switch {
		case step == deal.OpenSeals && opened:
			return now, nil
		case step == deal.OpenSeals:
			opened = true
			if err = s.openSeals(ctx, d); waitsForBeacon(err) {
				return now, err
			}
		case step == deal.None || step == deal.Draw: // Entropy (for a caller) or ProcessDeal (for deadline-worker) draws
			return now, nil
		case step == deal.Expire && now.Pending > 0 && opened: // the other seals in the next call
			return now, nil
		case step == deal.Expire:
			opened = now.Pending > 0
			if ended, err = s.drawOrExpire(ctx, d, now.Pending); waitsForBeacon(err) {
				return now, err
			}
		default:
			ended, err = s.endDeal(ctx, d, step, nil)
		}
		if errors.Is(err, errInputLost) {
			rules.InputLost = true
			if rules.Next(now.Now) != deal.Expire {
				return now, err // until the deal expires, the operator may add the missing server secret
			}
			ended, err = s.expireLost(ctx, d)
		}
		switch {
		case err == nil && ended != nil && !selection.More():
			return ended, nil
		case err != nil && !errors.Is(err, errDealChanged):
			return nil, err
		}
	}
	return nil, fmt.Errorf("deal %s: a step is still due after 8 tries", d.DealID)
}

// drawOrExpire ends a deal after its entropy window. It first tries the draw or opens seals, because the
// round may have been published while this deployment was down. Only an unavailable round expires it, not
// beacon.ErrBusy.
func (s *Service) drawOrExpire(ctx context.Context, d *Deal, pending int) (drawn *store.Snapshot, err error) {
	if pending > 0 {
		err = s.openSeals(ctx, d)
	} else {
		drawn, err = s.endDeal(ctx, d, deal.Draw, nil)
	}
	if !waitsForBeacon(err) || errors.Is(err, beacon.ErrBusy) {
		return drawn, err
	}
	s.logger.WarnContext(ctx, "deal expires without its beacon round", "err", err)
	return s.endDeal(ctx, d, deal.Expire, nil)
}

// expireLost ends a deal with an input that cannot be decrypted: no party is at fault, so not as VOID.
func (s *Service) expireLost(ctx context.Context, d *Deal) (*store.Snapshot, error) {
	if err := s.secrets.Refresh(ctx, s.store); err != nil {
		return nil, err // the deal must not expire now: this process may lack the secret that decrypts the input
	}
	s.logger.ErrorContext(ctx, "deal expires because an input cannot be decrypted")
	return s.endDeal(ctx, d, deal.Expire, nil)
}

// Due lists the deals that need the worker within the horizon, at most `limit` of each kind (see
// store.Store.Due). It leaves out a deal of which the log has another certificate for an hour after
// the log's refusal (contradictedFor).
func (s *Service) Due(ctx context.Context, horizon time.Duration, limit int) ([]store.Due, error) {
	return s.store.Due(ctx, int64(horizon/time.Second), limit, s.contradicted.Keys())
}

// ProcessDeal does what is due for a deal: it takes the steps, draws and issues the certificate. `again`
// is the time until the clock makes the next step due, at most an hour, or 0. After an error the
// worker retries.
func (s *Service) ProcessDeal(ctx context.Context, dealID string) (again time.Duration, err error) {
	s.sameServer(ctx)
	d, err := s.dealOf(ctx, dealID)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now, err := s.takeSteps(ctx, d, store.NoParties)
	if err != nil {
		return 0, err
	}
	switch rules, at := s.rules(d, now), now.Now; rules.Next(at) {
	case deal.OpenSeals: // the other seals after other deals
		return time.Millisecond, nil
	case deal.Draw:
		if wait := d.drawAgain.Load() - at; wait > 0 {
			return time.Duration(wait) * time.Second, nil
		}
		now, err = s.endDeal(ctx, d, deal.Draw, nil)
		if waitsForBeacon(err) && rules.DrawsAtOnce() && at < rules.DrawAt()+deal.DrawDelay { // the round may be a little late
			d.drawAgain.Store(at + roundPause)
			return roundPause * time.Second, nil
		}
		if errors.Is(err, errDealChanged) {
			now, err = s.takeSteps(ctx, d, store.NoParties)
		}
		if err != nil {
			return 0, err
		}
	}
	if closes(now) {
		err = s.closeCommits(ctx, d)
	}
	if now.CertID != nil && !now.Published {
		return 0, errors.Join(err, s.issueAgain(ctx, *now.CertID))
	}
	if err != nil {
		return 0, err
	}
	if at, ok := s.rules(d, now).DueAt(); ok {
		wait := min(at, now.Now+3600)*1000 - now.NowMilli
		return max(time.Duration(wait)*time.Millisecond, time.Millisecond), nil
	}
	return 0, nil
}

// issueAgain issues a certificate, unless it is published, or the log has another one of the deal: then a retry does not help.
func (s *Service) issueAgain(ctx context.Context, certID string) error {
	c, err := s.store.Certificate(ctx, certID)
	if err != nil || c.LeafIndex != nil {
		return err
	}
	if err = s.issueCertificate(ctx, c); errors.Is(err, translog.ErrTagTaken) {
		return nil
	}
	return err
}

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

// pinnedRound returns a stored beacon round. If the row is missing or invalid, it fetches the round
// from a relay, and stores it if the row was missing. It never replaces a row.
func (s *Service) pinnedRound(ctx context.Context, chainHash string, number int64) (*algorithm.Beacon, error) {
	drawn := &algorithm.Beacon{ChainHash: chainHash, Round: number}
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
		return nil, problem.New(problem.BeaconNotReady, "beacon round %d was due at %d and no relay has published it yet; call again in a few seconds", drawn.Round, chain.RoundTime(number)).WithRetryAfter(3)
	case errors.Is(err, beacon.ErrBusy):
		return nil, problem.New(problem.Overloaded, "this replica has asked the beacon relays for too many rounds to ask for round %d now; nothing changed: call again in a few seconds", drawn.Round).WithRetryAfter(3).WithCause(err)
	case err != nil:
		return nil, problem.New(problem.BeaconUnavailable, "no relay returned a verified value of beacon round %d; nothing changed: call again in a few seconds", drawn.Round).WithCause(err)
	}
	drawn.Randomness, drawn.Signature = round.Randomness, round.Signature
	return drawn, s.store.PutRound(ctx, drawn.ChainHash, drawn.Round, drawn.Randomness, drawn.Signature)
}

func verifies(chain drand.Chain, drawn *algorithm.Beacon) bool {
	signature, err := hex.DecodeString(drawn.Signature)
	if err != nil {
		return false
	}
	randomness, err := chain.Verify(drawn.Round, signature)
	return err == nil && hex.EncodeToString(randomness[:]) == drawn.Randomness
}
