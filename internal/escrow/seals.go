package escrow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// maxSeal returns the most bytes of a seal, in a deal whose inputs have at most n bytes: input, salt and
// deal id in base64, and the header. Only a salt of many escaped characters does not fit.
func maxSeal(n int) int { return (n+canon.MaxSalt)*3/2 + 1<<10 }

// sealRound returns the beacon round of the deal's seals, or why the deal takes none. The round follows
// from the declaration alone.
func (s *Service) sealRound(t *deal.Terms) (int64, error) {
	chain := s.beacon.Chain()
	if t.ChainHash != nil && *t.ChainHash != chain.Hash {
		return 0, fmt.Errorf("the deal's beacon chain %s is not the chain that this deployment uses (%s)", *t.ChainHash, chain.Hash)
	}
	if err := timelock.CheckDeadlines(chain, t.CommitDeadline, t.RevealDeadline); err != nil {
		return 0, err
	}
	round := timelock.RoundOf(chain, t.CommitDeadline)
	if t.BeaconRound != nil && *t.BeaconRound <= round {
		return 0, fmt.Errorf("beacon_round %d is not after round %d, which opens the seals", *t.BeaconRound, round)
	}
	return round, nil
}

var errNoReceipts = problem.New(problem.InvalidRequest, "this deployment accepts no seals, because it has no public address for their receipts: leave out seal, seals and timelock, or ask its operator to set FAIRPACT_PUBLIC_URL")

// attachSeal checks the seal of a commitment and adds it to the act, encrypted. Only the round shows
// whether the seal opens to the commitment.
func (s *Service) attachSeal(ctx context.Context, act *store.Act, a Access, seal string) error {
	switch {
	case seal == "" && a.deal.Seals == deal.SealsRequired:
		return problem.New(problem.SealRequired, "this deal takes no commitment without a seal: seal your opening for the beacon round of the deal, as /protocol, section 3.2, describes, and send it as `seal` with the commitment; `fairpactctl deal join` does so")
	case seal == "":
		return nil
	case s.options.PublicURL == "":
		return errNoReceipts
	}
	round, err := s.sealRound(&a.deal.Terms)
	if err != nil {
		return problem.New(problem.InvalidSeal, "this deal takes no seals: %s; leave out seal and reveal by hand", err)
	}
	call, chain := budget.From(ctx), s.beacon.Chain()
	if err := call.Long(ctx); err != nil { // for the check of a point
		return err
	}
	if _, err := timelock.Check(chain, seal, round, maxSeal(a.deal.inputLimit())); err != nil {
		return problem.New(problem.InvalidSeal, "%s. Nothing is committed: seal for round %d of beacon chain %s, or leave out seal and reveal by hand", err, round, chain.Hash)
	}
	writer := s.secrets.Writer()
	act.Secret = writer.Fingerprint()
	act.Seal = &store.NewSeal{
		Hash: sha256.Sum256([]byte(seal)), Sealed: writer.EncryptSeal(a.deal.DealID, a.party, []byte(seal)), RoundTime: chain.RoundTime(round),
	}
	return nil
}

// Receipt proves that the service accepted a seal in time.
type Receipt struct {
	Text      string `json:"text"`      // timelock.Receipt.Message
	Signature string `json:"signature"` // of the text, by the deployment key
}

// addReceipt signs the receipt for a party's seal. If signing fails, the commitment stands without one.
func (s *Service) addReceipt(ctx context.Context, a Access, to *Committed, commitment, hash [32]byte, at int64) {
	round, err := s.sealRound(&a.deal.Terms)
	if err != nil {
		s.logger.WarnContext(ctx, "seal accepted without a receipt", "err", err)
		return
	}
	chain := s.beacon.Chain()
	to.OpensAt = chain.RoundTime(round)
	text := timelock.Receipt{
		Origin: s.options.PublicURL, DealID: a.deal.DealID, Party: int64(a.party), Commitment: store.CommitmentText(commitment[:]),
		SealHash: fmt.Sprintf("%x", hash), Chain: chain.Hash, Round: round, Time: at,
	}.Message()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timelimits.Issue)
	defer cancel()
	signature, err := s.signer.Sign(ctx, sha256.Sum256(text))
	if err != nil {
		s.logger.WarnContext(ctx, "seal accepted without a receipt", "err", err)
		return
	}
	to.Receipt = &Receipt{string(text), signature}
}

// answerCopies is how many times an opening, and the seal and the answer made of it, are in memory.
const answerCopies = 16

// SealOpening seals an opening for a party that cannot run code. The input passes through the service.
func (s *Service) SealOpening(ctx context.Context, a Access, o Opening) (string, error) {
	if s.options.PublicURL == "" {
		return "", errNoReceipts
	}
	round, err := s.sealRound(&a.deal.Terms)
	if err != nil {
		return "", problem.New(problem.InvalidSeal, "this deal takes no seals: %s; leave out timelock and reveal by hand", err)
	}
	var random timelock.Random
	_, _ = rand.Read(random[:]) // never returns an error
	opening := timelock.Opening{DealID: a.deal.DealID, Party: int64(a.party), Input: o.Input, Salt: o.Salt}
	text, call := opening.Plaintext(), budget.From(ctx)
	if err := hold(ctx, answerCopies*len(text)); err != nil {
		return "", err
	}
	if err := call.Long(ctx); err != nil {
		return "", err
	}
	return timelock.Seal(s.beacon.Chain(), round, text, random), nil
}

// Seals says what happened to the timelock seals of a deal.
type Seals struct {
	Chain   string   `json:"chain_hash"`
	Round   int64    `json:"round"`
	OpensAt int64    `json:"opens_at"` // when the round is due, in unix seconds
	Parties []string `json:"parties"`  // in party order: none, sealed, opened or failed
}

// seals returns nil if the deal has no seals and requires none.
func (s *Service) seals(ctx context.Context, d *Deal) (*Seals, error) {
	stored, err := s.store.Seals(ctx, d.DealID, 0, len(d.Labels)-1)
	if err != nil || len(stored) == 0 && d.Seals == "" {
		return nil, err
	}
	chain := s.beacon.Chain()
	round := timelock.RoundOf(chain, d.CommitDeadline)
	all := &Seals{Chain: chain.Hash, Round: round, OpensAt: chain.RoundTime(round), Parties: make([]string, len(d.Labels))}
	for i := range all.Parties {
		all.Parties[i] = "none"
	}
	for _, one := range stored {
		all.Parties[one.Party] = store.SealPending // also if the party then revealed by hand, or the deal ended first
		if one.State == store.SealOpened || one.State == store.SealFailed {
			all.Parties[one.Party] = one.State
		}
	}
	return all, nil
}

// openedBy returns the round that opened an input of the deal, or 0.
func (s *Service) openedBy(d *Deal, now *store.Snapshot) int64 {
	if !now.Opened {
		return 0
	}
	return timelock.RoundOf(s.beacon.Chain(), d.CommitDeadline)
}
