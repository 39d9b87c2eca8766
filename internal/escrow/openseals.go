package escrow

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

const (
	sealRows  = 128     // seals that one call of openSeals opens at most
	sealBytes = 4 << 20 // seals of this many bytes end the batch

	sealCopies = 4 // how many times a seal is in memory while it is opened

	roundWait  = 2 * time.Second // how long a call waits for the relays
	roundPause = 3               // seconds between two requests for a late round
)

// openSeals opens some of the deal's pending seals. A seal that opens to its party's commitment is a
// reveal like any other. It is stored by itself, and the seal is deleted in the same transaction. A seal
// that does not open is marked and kept. Rejections (shapley.v1) are stored last, together, so that the
// certificate names every party that rejected.
//
//	interrupted after      the next process
//	some reveals           opens the other seals: a stored reveal leaves no pending seal
//	the marks              stores the rejections, whose seals are still pending
//
// Several processes can do this at once: the database stores one reveal of a party. If the round is not
// published, openSeals returns BEACON_NOT_READY, BEACON_UNAVAILABLE or beacon.ErrBusy. If a seal cannot be decrypted
// under the server secrets, openSeals returns errInputLost and marks nothing.
func (s *Service) openSeals(ctx context.Context, d *Deal) error {
	_, err := once(ctx, &s.steps, d.DealID+" seals", func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		return nil, s.openBatch(ctx, d)
	})
	return err
}

func (s *Service) openBatch(ctx context.Context, d *Deal) error {
	key, err := s.sealKey(ctx, d)
	if err != nil {
		return err
	}
	one := maxSeal(d.inputLimit())
	bytes := min(len(d.Labels)*one, sealBytes)
	if err := hold(ctx, sealCopies*one+2*bytes); err != nil { // what is read, and the reveals
		return err
	}
	seals, err := s.store.PendingSeals(ctx, d.DealID, sealRows, bytes)
	if err != nil {
		return err
	}
	opened, call := make([]openedSeal, len(seals)), budget.From(ctx)
	if err := call.Long(ctx); err != nil {
		return err
	}
	for i := range seals { // one after the other, a millisecond each
		opened[i] = s.open(d, key, seals[i])
		if err := call.Yield(ctx); err != nil {
			return err
		}
	}
	var reveals, rejections []store.Act
	var failed []int
	var last error
	for i, one := range opened {
		switch {
		case errors.Is(one.err, errInputLost), waitsForBeacon(one.err):
			return one.err
		case one.err != nil:
			failed, last = append(failed, seals[i].Party), one.err
		case one.rejects:
			rejections = append(rejections, one.act)
		default:
			reveals = append(reveals, one.act)
		}
	}
	err = each(len(reveals), func(i int) error {
		_, err := s.store.Reveal(ctx, reveals[i])
		crash.Point("escrow.unsealed")
		return err
	})
	if err == nil && len(failed) > 0 {
		s.logger.WarnContext(ctx, "seals do not open to their commitments", "count", len(failed), "err", last)
		err = s.store.FailSeals(ctx, d.DealID, failed)
	}
	if err == nil && len(rejections) > 0 {
		err = s.rejectBySeal(ctx, d, rejections)
	}
	sealsOpened.WithLabelValues("opened").Add(float64(len(reveals) + len(rejections)))
	sealsOpened.WithLabelValues("failed").Add(float64(len(failed)))
	s.options.Waits.Notify(d.DealID)
	if errors.Is(err, store.ErrSecretReplaced) {
		return s.secrets.Refresh(ctx, s.store) // the seals are still pending
	}
	return err
}

// sealKey returns the key of the deal's seals: the verified signature of their round. After a failure, it
// asks no relay for a few seconds, because every call that meets the deal comes here.
func (s *Service) sealKey(ctx context.Context, d *Deal) (key timelock.Key, err error) {
	round, err := s.sealRound(&d.Terms)
	if err != nil {
		return key, problem.New(problem.BeaconUnavailable, "the seals of this deal cannot be opened: %s; tell the operator of this deployment", err)
	}
	chain, now := s.beacon.Chain(), time.Now().Unix()
	if last := s.lastRound.Load(); last != nil && last.chain == chain.Hash && last.round == round {
		return last.key, nil
	}
	if now < d.roundAgain.Load() {
		return key, problem.New(problem.BeaconNotReady, "beacon round %d, which opens the seals, is not published yet; call again in a few seconds", round).WithRetryAfter(roundPause)
	}
	ctx, cancel := context.WithTimeout(ctx, roundWait)
	defer cancel()
	published, err := s.pinnedRound(ctx, chain.Hash, round)
	if err != nil {
		if !errors.Is(err, beacon.ErrBusy) { // says nothing about the round
			d.roundAgain.Store(now + roundPause)
		}
		return key, err
	}
	signature, err := hex.DecodeString(published.Signature)
	if err == nil {
		key, err = timelock.NewKey(chain, round, signature)
	}
	if err == nil {
		s.lastRound.Store(&roundKey{chain.Hash, round, key})
	}
	return key, err
}

// roundKey is the key of a round, whose signature has been verified: many deals have seals for the same round.
type roundKey struct {
	chain string
	round int64
	key   timelock.Key
}

// openedSeal is a reveal from a seal, or the reason why there is none.
type openedSeal struct {
	act     store.Act
	rejects bool
	err     error
}

func (s *Service) open(d *Deal, key timelock.Key, pending store.PendingSeal) openedSeal {
	text, err := s.secrets.DecryptSeal(d.DealID, pending.Party, pending.Sealed)
	if err != nil {
		return openedSeal{err: inputLost("read a stored seal", err)}
	}
	opening, input, salt, err := key.Reveal(string(text), d.DealID, int64(pending.Party), store.CommitmentText(pending.Commitment))
	if errors.Is(err, timelock.ErrSeal) { // the check at the commitment passed, so the beacon of the deployment has changed since: no party is at fault
		err = problem.New(problem.BeaconUnavailable, "a seal of this deal is not for the beacon that this deployment uses: %s; tell the operator of this deployment", err)
	}
	if err != nil {
		return openedSeal{err: err}
	}
	if d.checkInput(opening.Input) != nil { // the error may quote the input, which must not be logged
		return openedSeal{err: errors.New("its input does not fit the algorithm")}
	}
	writer := s.secrets.Writer()
	return openedSeal{rejects: d.algorithm.Rejects(opening.Input), act: store.Act{
		DealID: d.DealID, Party: pending.Party, Commitment: [32]byte(pending.Commitment), BySeal: true, Secret: writer.Fingerprint(),
		Sealed: writer.SealInput(d.DealID, pending.Party, sealing.Input{Canonical: input, Salt: opening.Salt, SaltBytes: salt}),
	}}
}

// rejectBySeal ends the deal with the rejections, unless it has changed. Then their seals are still
// pending, or the deal has ended.
func (s *Service) rejectBySeal(ctx context.Context, d *Deal, rejections []store.Act) error {
	now, err := s.store.Snapshot(ctx, d.DealID, store.WithInputs(len(d.Labels)))
	if err != nil {
		return err
	}
	if now.Ended() || now.Pending != len(rejections) {
		return nil
	}
	opened := *now // which other calls share
	opened.Opened = true
	_, err = s.rejected(ctx, d, &opened, rejections...)
	return err
}

// each calls `do` for 0 to n-1, all at the same time, and returns one of the errors.
func each(n int, do func(int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = do(i) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
