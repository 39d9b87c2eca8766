package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

var errDealChanged = errors.New("the deal changed while its ending was computed")

// endDeal takes a step that ends the deal, and tries to issue the certificate. It returns the
// snapshot of the ended deal, or errDealChanged if the step is no longer due.
//
// The inputs come from `known`: the last reveal passes the snapshot that its own statement returned;
// any other caller passes nil, and endDeal reads one. Concurrent calls in one process for the same
// step share one run, with the first caller's snapshot. An old snapshot is safe: store.End writes
// nothing if the deal has changed since.
func (s *Service) endDeal(ctx context.Context, d *Deal, step deal.Step, known *store.Snapshot) (*store.Snapshot, error) {
	after, err := once(ctx, &s.steps, fmt.Sprint(d.DealID, " ", step), func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		var drawn *algorithm.Beacon
		var err error
		if step == deal.Draw { // without the beacon round there is no reason to read the inputs
			if drawn, err = s.pinnedRound(ctx, *d.ChainHash, *d.BeaconRound); err != nil {
				return nil, err
			}
		}
		now := known
		if now == nil {
			if err := hold(ctx, d.endBytes(step, 0)); err != nil {
				return nil, err
			}
			selection := store.Attested(len(d.Labels))
			if step == deal.Compute || step == deal.Draw {
				selection = store.WithInputs(len(d.Labels))
			}
			if now, err = s.store.Snapshot(ctx, d.DealID, selection); err != nil {
				return nil, err
			}
		}
		if err := hold(ctx, d.endBytes(step, now.InputBytes)); err != nil {
			return nil, err
		}
		if !s.stillDue(d, now, step) {
			return nil, errDealChanged
		}
		e, err := s.ending(ctx, d, now, step, drawn)
		if err != nil {
			return nil, err
		}
		ended, err := s.storeEnding(ctx, d, now, e)
		budget.From(ctx).Shrink(int64(max(budget.SmallCall, keptCopies*(len(e.Payload)+len(e.Result)))))
		if err == nil && e.CertID != nil {
			ended.Published = s.tryIssue(ctx, certificateOf(e)) == nil
		}
		return ended, err
	})
	if err != nil {
		return nil, err
	}
	return after.(*store.Snapshot), nil
}

// stillDue reports whether a step may still end the deal. A party may draw before the worker does.
func (s *Service) stillDue(d *Deal, now *store.Snapshot, step deal.Step) bool {
	rules := s.rules(d, now)
	if step == deal.Draw {
		return rules.AllRevealed()
	}
	rules.InputLost = step == deal.Expire // without InputLost, Next returns Expire only for a deal that waits for a beacon round
	return rules.Next(now.Now) == step
}

// storeEnding stores the deal's end, and makes the snapshot after it without a read. It returns
// errDealChanged if the deal has changed since `now`.
func (s *Service) storeEnding(ctx context.Context, d *Deal, now *store.Snapshot, e *store.Ending) (*store.Snapshot, error) {
	crash.Point("escrow.before-end")
	done, err := s.store.End(ctx, e)
	if err != nil {
		return nil, err
	}
	if !done {
		return nil, errDealChanged
	}
	// A draw by a party before DueAt has no lateness.
	rules := s.rules(d, now)
	at, ok := rules.DueAt()
	if rules.DrawsAtOnce() && rules.AllRevealed() {
		at += deal.DrawDelay // a draw is late as without seals: the relays may be late
	}
	if ok && now.NowMilli >= at*1000 {
		lateness.Observe(float64(now.NowMilli-at*1000) / 1000)
	}
	s.noteEnd(ctx, e)
	crash.Point("escrow.ended")
	after := *now
	after.Phase, after.RevealsClosedAt, after.ComputedAt = e.To, e.RevealsClosedAt, e.ComputedAt
	after.Result, after.VoidFlakers, after.CertID = e.Result, e.VoidFlakers, e.CertID
	after.Sealed, after.AttestedBy = nil, nil
	return &after, nil
}

func (s *Service) ending(ctx context.Context, d *Deal, now *store.Snapshot, step deal.Step, drawn *algorithm.Beacon) (*store.Ending, error) {
	e := &store.Ending{DealID: d.DealID, Parties: len(d.Labels), From: now.Phase, Commits: now.Commits, Reveals: now.Reveals, At: now.Now}
	if s.rules(d, now).AllRevealed() {
		e.RevealsClosedAt = &now.LastReveal
	}
	switch step {
	case deal.Expire: // SPEC 3: EXPIRED has no certificate
		e.To = deal.Expired
		return e, nil
	case deal.Compute, deal.Draw:
		e.To, e.ComputedAt = deal.Computed, &now.Now
		var tree certificate.InputTree
		inputs := make([]map[string]any, 0, len(d.Labels))
		err := s.eachInput(ctx, d, now, nil, func(party int, in sealing.Input) error {
			tree.Add(in.Canonical, in.SaltBytes)
			input, err := canon.ParseObject(in.Canonical)
			if err != nil {
				return fmt.Errorf("cannot parse the stored input of party %d of deal %s: %w", party, d.DealID, err)
			}
			inputs = append(inputs, d.algorithm.KnownInput(input))
			return nil
		})
		if err != nil {
			return nil, err
		}
		// What can be large is computed as what is long.
		if err := budget.From(ctx).Turn(ctx); err != nil {
			return nil, err
		}
		// SPEC 1: the algorithm is deterministic and pure.
		if e.Result, err = d.algorithm.Compute(d.Labels, d.params, inputs, drawn); err != nil {
			return nil, err
		}
		return e, s.certify(d, now, &tree, "", e)
	}
	e.To = deal.Void
	cause, failed := certificate.MissedReveal, func(p store.PartyStatus) bool { return !p.Revealed }
	if step == deal.VoidCommits {
		cause, failed = certificate.MissedCommit, func(p store.PartyStatus) bool { return p.Commitment == nil }
	}
	for i, p := range now.Parts {
		if failed(p) {
			e.VoidFlakers = append(e.VoidFlakers, i)
		}
	}
	return e, s.certify(d, now, nil, cause, e)
}

// eachInput decrypts the inputs of all parties, and calls `do` in party order. `now` MUST have been read
// with the inputs. `unstored` are reveals that are not stored yet, in party order. The error is errDealChanged if an
// input is missing or purged, and UNAVAILABLE with the cause errInputLost if one cannot be decrypted.
func (s *Service) eachInput(ctx context.Context, d *Deal, now *store.Snapshot, unstored []store.Act, do func(party int, in sealing.Input) error) error {
	next := 0
	open := func(sealed []byte) error {
		if sealed == nil || next >= len(d.Labels) {
			return errDealChanged
		}
		in, err := s.secrets.OpenInput(d.DealID, next, sealed)
		if err != nil {
			return inputLost("open a stored input", err)
		}
		next++
		return do(next-1, in)
	}
	own := func() error {
		for len(unstored) > 0 && next == unstored[0].Party {
			if err := open(unstored[0].Sealed); err != nil {
				return err
			}
			unstored = unstored[1:]
		}
		return nil
	}
	stored := func(in store.SealedInput) error {
		if err := own(); err != nil {
			return err
		}
		return open(in.Sealed)
	}
	if now.Sealed == nil && now.InputBytes > store.SmallRead {
		if err := s.store.Inputs(ctx, d.DealID, len(d.Labels), stored); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	for _, sealed := range now.Sealed {
		if err := stored(store.SealedInput{Sealed: sealed}); err != nil {
			return err
		}
	}
	if err := own(); err != nil {
		return err
	}
	if next != len(d.Labels) {
		return errDealChanged
	}
	return nil
}

// errInputLost: the server secret that encrypted an input is missing, or the row was changed. Unless
// an operator adds the secret before the last deadline, the deal becomes EXPIRED.
var errInputLost = errors.New("input lost")

// inputLost counts an input or a seal that does not decrypt, and returns the error for the caller.
func inputLost(what string, err error) error {
	inputsLost.Inc()
	return problem.New(problem.Unavailable, "this service cannot %s of the deal at present, and the operator of this deployment is alerted; send the same request again later", what).
		WithRetryAfter(60).WithCause(fmt.Errorf("%w: %w", errInputLost, err))
}

// certify adds the unsigned certificate to e (SPEC 2.5). `void` is the property that says why the deal
// is VOID, or "". `inputs` is nil if a party has not revealed.
func (s *Service) certify(d *Deal, now *store.Snapshot, inputs *certificate.InputTree, void string, e *store.Ending) error {
	digest, err := d.digest()
	if err != nil {
		return err
	}
	id := sealing.ID(certPrefix)
	p := certificate.Payload{
		CertVersion: certificate.Version, CertID: id, DealID: d.DealID,
		Outcome: certificate.Void, Algorithm: d.Algorithm, Mode: d.Mode, Retention: d.Retention,
		Parties: make([]certificate.Party, len(now.Parts)), Result: e.Result, VoidFlakers: e.VoidFlakers,
		Timing: certificate.Timing{
			CreatedAt: d.CreatedAt, CommitsClosedAt: now.CommitsClosedAt, RevealsClosedAt: e.RevealsClosedAt, ComputedAt: e.ComputedAt,
		},
	}
	if e.To == deal.Computed {
		p.Outcome = certificate.Computed
	}
	p.Properties = certificate.Properties(certificate.Facts{
		Algorithm: d.Algorithm, Retention: d.Retention, Void: void, Revealed: now.Reveals > 0 || void == certificate.Rejected, Declaration: digest,
		SealRound: s.openedBy(d, now), Organised: d.ActedBy != "",
	})
	for i, status := range now.Parts {
		p.Parties[i] = certificate.Party{Index: i, Label: d.Labels[i], Commitment: status.Commitment, AttestedBy: d.attested(i, now.AttestedBy[i])}
	}
	if inputs != nil { // SPEC 2.5: input_root is null for a VOID deal with insufficient reveals
		root := inputs.Root()
		p.InputRoot = &root
	}
	payload, err := p.SigningBytes()
	if err != nil {
		return err
	}
	e.CertID, e.Payload, e.MAC = &id, payload, payloadMAC(s.secrets.Writer(), id, payload)
	return nil
}

// attested returns the party's attested_by for a certificate. `stored` is what its commitment brought.
func (d *Deal) attested(party int, stored *string) string {
	switch declared := d.SeatKey(party); {
	case stored != nil:
		return *stored
	case declared != nil:
		return certificate.Attestation{Declared: true, Key: *declared}.String()
	}
	return certificate.AttestedByInitiator
}

// payloadMAC shows that this service wrote the payload. The service signs only payloads with this MAC,
// so it never signs a certificate that somebody planted in the database.
func payloadMAC(secret *sealing.Secret, certID string, payload []byte) []byte {
	return secret.MAC([]byte("certificate"), []byte(certID), payload)
}

func certificateOf(e *store.Ending) *store.Certificate {
	return &store.Certificate{CertID: *e.CertID, DealID: e.DealID, Payload: e.Payload, MAC: e.MAC}
}

func (s *Service) noteEnd(ctx context.Context, e *store.Ending) {
	endedBy[e.To].Inc()
	s.options.Waits.Notify(e.DealID)
	s.logger.InfoContext(ctx, "deal ended", "state", e.To, "void_flakers", len(e.VoidFlakers))
}
