package escrow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
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
// The inputs come from `now`: the last reveal passes the snapshot that its own statement returned;
// any other caller passes nil, and endDeal reads one. Concurrent calls in one process for the same
// step share one run, with the first caller's snapshot. An old snapshot is safe: store.End writes
// nothing if the deal has changed since.
func (s *Service) endDeal(ctx context.Context, d *Deal, step deal.Step, now *store.Snapshot) (*store.Snapshot, error) {
	after, err, _ := s.steps.Do(fmt.Sprint(d.DealID, " ", step), func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		var drawn *algorithm.Beacon
		var err error
		if step == deal.Draw { // without the beacon round there is no reason to read the inputs
			if drawn, err = s.pinnedRound(ctx, d); err != nil {
				return nil, err
			}
		}
		if now == nil {
			selection := store.Attested(len(d.Labels))
			if step == deal.Compute || step == deal.Draw {
				selection = store.WithInputs
			}
			if now, err = s.store.Snapshot(ctx, d.DealID, selection); err != nil {
				return nil, err
			}
		}
		if !s.stillDue(d, now, step) {
			return nil, errDealChanged
		}
		e, err := s.ending(d, now, step, drawn)
		if err != nil {
			return nil, err
		}
		ended, err := s.storeEnding(ctx, d, now, e)
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
	rules.InputLost = step == deal.Expire // without InputLost, Next returns Expire only for random.v1
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
	if at, ok := s.rules(d, now).DueAt(); ok && now.NowMilli >= at*1000 {
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

func (s *Service) ending(d *Deal, now *store.Snapshot, step deal.Step, drawn *algorithm.Beacon) (*store.Ending, error) {
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
		inputs, err := s.inputs(d, now.Sealed)
		if err != nil {
			return nil, err
		}
		if e.Result, err = compute(d, inputs, drawn); err != nil {
			return nil, err
		}
		return e, s.certify(d, now, inputs, "", e)
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

// inputs decrypts the inputs of all parties, in party order. It returns errDealChanged if they are
// purged, and UNAVAILABLE with the cause errInputLost if one cannot be decrypted.
func (s *Service) inputs(d *Deal, sealed [][]byte) ([]sealing.Input, error) {
	if len(sealed) != len(d.Labels) {
		return nil, errDealChanged
	}
	all := make([]sealing.Input, len(sealed))
	for i := range sealed {
		if sealed[i] == nil {
			return nil, errDealChanged
		}
		var err error
		if all[i], err = s.secrets.OpenInput(d.DealID, i, sealed[i]); err != nil {
			inputsLost.Inc()
			return nil, problem.New(problem.Unavailable, "this service cannot open a stored input of the deal at present, and the operator of this deployment is alerted; send the same request again later").
				WithRetryAfter(60).WithCause(fmt.Errorf("%w: %w", errInputLost, err))
		}
	}
	return all, nil
}

// errInputLost: the server secret that encrypted an input is missing, or the row was changed. Unless
// an operator adds the secret before the last deadline, the deal becomes EXPIRED.
var errInputLost = errors.New("input lost")

// compute runs the deal's algorithm. SPEC 1: the algorithm is deterministic and pure.
func compute(d *Deal, inputs []sealing.Input, drawn *algorithm.Beacon) ([]byte, error) {
	objects := make([]map[string]any, len(inputs))
	for i, in := range inputs {
		var err error
		if objects[i], err = canon.ParseObject(in.Canonical); err != nil {
			return nil, fmt.Errorf("cannot parse the stored input of party %d of deal %s: %w", i, d.DealID, err)
		}
	}
	return d.algorithm.Compute(d.Labels, d.params, objects, drawn)
}

// certify adds the unsigned certificate to e (SPEC 2.5). `void` is the property that says why the deal
// is VOID, or "". `inputs` is nil if a party has not revealed.
func (s *Service) certify(d *Deal, now *store.Snapshot, inputs []sealing.Input, void string, e *store.Ending) error {
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
	})
	for i, status := range now.Parts {
		p.Parties[i] = certificate.Party{Index: i, Label: d.Labels[i], Commitment: status.Commitment, AttestedBy: d.attested(i, now.AttestedBy[i])}
	}
	if inputs != nil { // SPEC 2.5: input_root is null for a VOID deal with insufficient reveals
		root := certificate.InputRoot(leavesOf(inputs))
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

// leavesOf returns the leaves under input_root: input ‖ salt of each party.
func leavesOf(inputs []sealing.Input) [][]byte {
	leaves := make([][]byte, len(inputs))
	for i, in := range inputs {
		leaves[i] = slices.Concat(in.Canonical, in.SaltBytes)
	}
	return leaves
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
